// SR-HPM: quantizing 32 activations with AVX2, for all x86 forms. Compilers do not vectorize it: left to
// them it took 6 % of a verify pass of 4 tokens.
#pragma once

#include "format.h"

#include <immintrin.h>

#include <cstdint>

namespace srhpm {
namespace { // of each translation unit its own

// The largest of 32 magnitudes.
inline float largest_x86(const float * x) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    __m256       most = _mm256_setzero_ps();
    for (int i = 0; i < 4; ++i) {
        most = _mm256_max_ps(most, _mm256_andnot_ps(sign, _mm256_loadu_ps(x + 8 * i)));
    }
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(most), _mm256_extractf128_ps(most, 1));
    m        = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

// Rounds 32 floats times `inverse` to nearest even; writes them and the sum of each 16.
inline void quantize_x86(const float * x, float inverse, int8_t * q, int32_t * sum) {
    __m256i n[4];
    for (int i = 0; i < 4; ++i) {
        n[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), _mm256_set1_ps(inverse)));
    }
    // packing works on halves of a vector: their order is mended at the end
    const __m256i mixed = _mm256_packs_epi16(_mm256_packs_epi32(n[0], n[1]), _mm256_packs_epi32(n[2], n[3]));
    const __m256i bytes = _mm256_permutevar8x32_epi32(mixed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i *) q, bytes);

    const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes);
    const __m256i fours = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
    const __m256i twos  = _mm256_hadd_epi32(fours, fours);
    const __m256i ones  = _mm256_hadd_epi32(twos, twos);
    sum[0]              = _mm256_extract_epi32(ones, 0);
    sum[1]              = _mm256_extract_epi32(ones, 4);
}

} // namespace
} // namespace srhpm
