// bench-gpu on a machine that has a GPU of STANDIN_MEMORY MiB (stand-in-gpu.h).

#include "stand-in-gpu.h"

#include <cstdlib>

int measure_gpu(int argc, char ** argv);

int main(int argc, char ** argv) {
    if (const char * mib = std::getenv("STANDIN_MEMORY")) {
        ggml_backend_load_all();
        stand_in_gpu((size_t) std::strtoull(mib, nullptr, 10) << 20);
    }
    return measure_gpu(argc, argv);
}
