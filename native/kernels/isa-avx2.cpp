#include "simd-avx2.h"

#include "kernels.inc"

const srhpm::Kernels * srhpm::kernels_avx2() {
    static constexpr Kernels kernels = table_of("avx2", std::make_integer_sequence<int, N_FORMATS>{});
    return &kernels;
}
