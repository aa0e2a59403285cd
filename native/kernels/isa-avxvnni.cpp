#include "simd-avx2.h"

#include "kernels.inc"

const srhpm::Kernels * srhpm::kernels_avxvnni() {
    static constexpr Kernels kernels = table_of("avxvnni", std::make_integer_sequence<int, N_FORMATS>{});
    return &kernels;
}
