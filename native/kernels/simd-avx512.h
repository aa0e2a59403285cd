// SR-HPM: AVX-512 with VNNI. One vector holds a group of all 16 rows.
#pragma once

#include "quantize-x86.h"

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace srhpm {
namespace { // of each translation unit its own

struct Simd {
    static constexpr int VROWS   = 16;  // rows of a vector
    static constexpr int LARGEST = 255; // unsigned weight that can be multiplied
    static constexpr int TILE    = 8;   // columns held in registers
    static constexpr int CHAINS  = 2;   // independent sums that hide the latency at few columns
    static constexpr int FLOAT_TILE = 6; // columns at a time where weights are floats: 24 sums

    using Bytes = __m512i;
    using Table = __m512i;
    using Ints  = __m512i;
    using Float = __m512;

    static void  fetch_ahead(const uint8_t * p) { _mm_prefetch((const char *) p, _MM_HINT_T1); }
    static void  fetch_soon(const uint8_t * p) { _mm_prefetch((const char *) p, _MM_HINT_T0); }
    static Bytes load(const uint8_t * p) { return _mm512_loadu_si512(p); }
    static Bytes bytes(uint8_t b) { return _mm512_set1_epi8((char) b); }
    static Bytes and_(Bytes a, Bytes b) { return _mm512_and_si512(a, b); }
    static Bytes or_(Bytes a, Bytes b) { return _mm512_or_si512(a, b); }
    static Bytes xor_(Bytes a, Bytes b) { return _mm512_xor_si512(a, b); }
    static constexpr bool BYTE_SHIFTS = false; // they cross bytes: the caller masks what that brings in
    template <int N> static Bytes right(Bytes a) { return _mm512_srli_epi16(a, N); }
    template <int N> static Bytes left(Bytes a) { return _mm512_slli_epi16(a, N); }

    static Table table(const uint8_t * t) {
        return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *) t));
    }
    static Bytes look_up(Table t, Bytes i) { return _mm512_shuffle_epi8(t, i); }

    // What is kept of a group of weights while columns pass by.
    using Weights = Bytes;
    template <bool SIGNED> static Weights weights(Bytes w) { return w; }

    template <int MAX> struct Dot {
        Ints sum;
        Ints total(int32_t) const { return sum; }
        void start(int32_t first) { sum = _mm512_set1_epi32(first); }
        // Adds group G, the STEPth of this sum, times the four of a block's activations it meets.
        template <bool SIGNED, int G, int STEP, bool LAST> void add(Weights w, const int8_t * a) {
            sum = _mm512_dpbusd_epi32(sum, w, _mm512_set1_epi32(word(a + 4 * G)));
        }
    };

    static Ints  add(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
    static Float to_float(Ints a) { return _mm512_cvtepi32_ps(a); }
    static Float zero() { return _mm512_setzero_ps(); }
    static Float set(float x) { return _mm512_set1_ps(x); }
    static Float mul(Float a, Float b) { return _mm512_mul_ps(a, b); }
    static Float fma(Float a, Float b, Float c) { return _mm512_fmadd_ps(a, b, c); }
    static Float fnma(Float a, Float b, Float c) { return _mm512_fnmadd_ps(a, b, c); }
    static void  store(float * p, Float a) { _mm512_storeu_ps(p, a); }

    static Float from_half(const uint8_t * p) {
        return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *) p));
    }
    static Float from_bfloat(const uint8_t * p) {
        return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *) p)), 16));
    }
    static Ints from_int8(const uint8_t * p) {
        return _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *) p));
    }
    static Ints from_uint8(const uint8_t * p) {
        return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *) p));
    }
    // Two numbers of each row that 16 bits hold: the first low.
    static Ints  pair(Ints a, Ints b) { return _mm512_mask_blend_epi16(0xaaaaaaaa, a, _mm512_slli_epi32(b, 16)); }
    // Adds the two products of such numbers.
    static Ints  add_pairs(Ints sum, Ints a, Ints b) { return _mm512_dpwssd_epi32(sum, a, b); }
    static int32_t word(const void * p) {
        int32_t w;
        memcpy(&w, p, 4);
        return w;
    }
    static Ints  low4(Ints a) { return _mm512_and_si512(a, _mm512_set1_epi32(15)); }
    static Ints  high4(Ints a) { return _mm512_srli_epi32(a, 4); }
    template <int N> static Ints shift(Ints a) { return _mm512_slli_epi32(a, N); }
    static Ints  ints(int32_t x) { return _mm512_set1_epi32(x); }
    static Ints  shift_by(Ints a, Ints n) { return _mm512_sllv_epi32(a, n); }
    static Ints  less(Ints a, Ints b, Ints then, Ints otherwise) {
        return _mm512_mask_blend_epi32(_mm512_cmplt_epi32_mask(a, b), otherwise, then);
    }
    static Float as_float(Ints a) { return _mm512_castsi512_ps(a); }

    // ---- floats, for attention ----
    static Float load_float(const float * p) { return _mm512_loadu_ps(p); }
    static Float add(Float a, Float b) { return _mm512_add_ps(a, b); }
    static Float max(Float a, Float b) { return _mm512_max_ps(a, b); }
    static Ints  round(Float a) { return _mm512_cvtps_epi32(a); }
    static float sum(Float a) { return _mm512_reduce_add_ps(a); }
    static float most(Float a) { return _mm512_reduce_max_ps(a); }
    // Adds the sum of each of four vectors to four floats.
    static void add_sums(const Float (&v)[4], float * out) {
        const Float a = _mm512_add_ps(_mm512_unpacklo_ps(v[0], v[1]), _mm512_unpackhi_ps(v[0], v[1]));
        const Float b = _mm512_add_ps(_mm512_unpacklo_ps(v[2], v[3]), _mm512_unpackhi_ps(v[2], v[3]));
        // each 128 bits: one part of the four sums
        const Float c = _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xee));
        const __m256 d = _mm256_add_ps(_mm512_castps512_ps256(c), _mm512_extractf32x8_ps(c, 1));
        const __m128 e = _mm_add_ps(_mm256_castps256_ps128(d), _mm256_extractf128_ps(d, 1));
        _mm_storeu_ps(out, _mm_add_ps(_mm_loadu_ps(out), e));
    }

    static float largest(const float * x) { return largest_x86(x); }
    static void  quantize(const float * x, float inverse, int8_t * q, int32_t * sum) { quantize_x86(x, inverse, q, sum); }
};

} // namespace
} // namespace srhpm
