#include "simd-avx512.h"

#include "kernels.inc"

const srhpm::Kernels * srhpm::kernels_avx512vnni() {
    static constexpr Kernels kernels = table_of("avx512vnni", std::make_integer_sequence<int, N_FORMATS>{});
    return &kernels;
}
