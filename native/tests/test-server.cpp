// llama-server on a machine that has a GPU of STANDIN_MEMORY MiB (stand-in-gpu.h); without, as it is.
// With STANDIN_LOG each graph that it computes is logged.

#include "stand-in-gpu.h"

#include <cstdlib>

int llama_server(int argc, char ** argv);

int main(int argc, char ** argv) {
    if (const char * mib = std::getenv("STANDIN_MEMORY")) {
        ggml_backend_load_all();
        stand_in_gpu((size_t) std::strtoull(mib, nullptr, 10) << 20);
    }
    return llama_server(argc, argv);
}
