// The stand-in GPU as a library of a host's. Being loaded leaves a mark in the log.
#include "stand-in-gpu.h"

#include "ggml-backend-impl.h"

#include <cstdio>

#ifdef LACKING
extern "C" void ggml_of_a_later_tag();
#endif

namespace {
struct Mark {
    Mark() { std::fprintf(stderr, "STANDIN: loaded, API version %d\n", GGML_BACKEND_API_VERSION); }
} mark;
} // namespace

extern "C" __attribute__((visibility("default"))) ggml_backend_reg_t ggml_backend_init() {
#ifdef LACKING
    ggml_of_a_later_tag();
#endif
    return stand_in_backend((size_t) 1 << 30);
}
