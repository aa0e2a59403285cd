#include "kernels.h"

#if defined(_MSC_VER) && !defined(__clang__)

const srhpm::Kernels * srhpm::kernels_portable() {
    return nullptr; // no generic vectors
}

#else

#include "simd-portable.h"

#include "kernels.inc"

const srhpm::Kernels * srhpm::kernels_portable() {
    static constexpr Kernels kernels = table_of("portable", std::make_integer_sequence<int, N_FORMATS>{});
    return &kernels;
}

#endif
