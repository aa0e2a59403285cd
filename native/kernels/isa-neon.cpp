#include "simd-neon.h"

#include "kernels.inc"

const srhpm::Kernels * srhpm::kernels_neon() {
    static constexpr Kernels kernels = table_of("neon", std::make_integer_sequence<int, N_FORMATS>{});
    return &kernels;
}
