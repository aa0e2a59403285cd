// SR-HPM: AVX2, and AVX-VNNI where SRHPM_AVXVNNI is defined. One vector holds a group
// of 8 rows.
#pragma once

#include "quantize-x86.h"

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace srhpm {
namespace { // of each translation unit its own

struct Simd {
    static constexpr int VROWS = 8;
#if defined(SRHPM_AVXVNNI)
    static constexpr int  LARGEST    = 255;
#else
    static constexpr int  LARGEST    = 129; // pairs of products are summed in 16 bits
#endif
    static constexpr int TILE   = 8; // columns of a pass over the weights
    static constexpr int CHAINS = 1;
    static constexpr int FLOAT_TILE = 3; // columns at a time where weights are floats: 12 sums

    using Bytes = __m256i;
    using Table = __m256i;
    using Ints  = __m256i;
    using Float = __m256;

    static void  fetch_ahead(const uint8_t * p) { _mm_prefetch((const char *) p, _MM_HINT_T1); }
    static void  fetch_soon(const uint8_t * p) { _mm_prefetch((const char *) p, _MM_HINT_T0); }
    static Bytes load(const uint8_t * p) { return _mm256_loadu_si256((const __m256i *) p); }
    static Bytes bytes(uint8_t b) { return _mm256_set1_epi8((char) b); }
    static Bytes and_(Bytes a, Bytes b) { return _mm256_and_si256(a, b); }
    static Bytes or_(Bytes a, Bytes b) { return _mm256_or_si256(a, b); }
    static Bytes xor_(Bytes a, Bytes b) { return _mm256_xor_si256(a, b); }
    static constexpr bool BYTE_SHIFTS = false;
    template <int N> static Bytes right(Bytes a) { return _mm256_srli_epi16(a, N); }
    template <int N> static Bytes left(Bytes a) { return _mm256_slli_epi16(a, N); }

    static Table table(const uint8_t * t) {
        return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *) t));
    }
    static Bytes look_up(Table t, Bytes i) { return _mm256_shuffle_epi8(t, i); }

    // Signed weights are multiplied as magnitudes, their signs moved to the activations.
    struct Weights {
        Bytes u;
        Bytes sign;
    };
    template <bool SIGNED> static Weights weights(Bytes w) {
        return SIGNED ? Weights{_mm256_abs_epi8(w), w} : Weights{w, w};
    }

    // Four activations for all rows.
    static Bytes four(const int8_t * a) {
        int32_t bits;
        memcpy(&bits, a, 4);
        return _mm256_set1_epi32(bits);
    }

#if defined(SRHPM_AVXVNNI)
    template <int MAX> struct Dot {
        Ints sum;
        void start(int32_t first) { sum = _mm256_set1_epi32(first); }
        template <bool SIGNED, int G, int STEP, bool LAST> void add(const Weights & w, const int8_t * a) {
            sum = _mm256_dpbusd_avx_epi32(sum, w.u, four(a + 4 * G));
        }
        Ints total(int32_t) const { return sum; }
    };
#else
    // Sums pairs of products in 16 bits for as many groups as cannot overflow.
    template <int MAX> struct Dot {
        static constexpr int FITS = 32767 / (MAX * 127 * 2);
        static_assert(FITS >= 1, "weights of this size need the signed path");
        Ints pairs;
        Ints sum;
        void start(int32_t) {} // added at the end: registers are few
        Ints total(int32_t first) const { return _mm256_add_epi32(sum, _mm256_set1_epi32(first)); }
        template <bool SIGNED, int G, int STEP, bool LAST> void add(const Weights & w, const int8_t * a) {
            Bytes v = four(a + 4 * G);
            if (SIGNED) {
                v = _mm256_sign_epi8(v, w.sign);
            }
            const Ints products = _mm256_maddubs_epi16(w.u, v);
            pairs = STEP % FITS == 0 ? products : _mm256_add_epi16(pairs, products);
            if (LAST || STEP % FITS == FITS - 1) {
                const Ints fours = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
                sum              = STEP < FITS ? fours : _mm256_add_epi32(sum, fours);
            }
        }
    };
#endif

    static Ints  add(Ints a, Ints b) { return _mm256_add_epi32(a, b); }
    static Float to_float(Ints a) { return _mm256_cvtepi32_ps(a); }
    static Float zero() { return _mm256_setzero_ps(); }
    static Float set(float x) { return _mm256_set1_ps(x); }
    static Float mul(Float a, Float b) { return _mm256_mul_ps(a, b); }
    static Float fma(Float a, Float b, Float c) { return _mm256_fmadd_ps(a, b, c); }
    static Float fnma(Float a, Float b, Float c) { return _mm256_fnmadd_ps(a, b, c); }
    static void  store(float * p, Float a) { _mm256_storeu_ps(p, a); }

    static Float from_half(const uint8_t * p) {
        return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *) p));
    }
    static Float from_bfloat(const uint8_t * p) {
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *) p)), 16));
    }
    static Ints from_int8(const uint8_t * p) {
        return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *) p));
    }
    static Ints from_uint8(const uint8_t * p) {
        return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *) p));
    }
    // Two numbers of each row that 16 bits hold: the first low.
    static Ints pair(Ints a, Ints b) { return _mm256_blend_epi16(a, _mm256_slli_epi32(b, 16), 0xaa); }
    // Adds the two products of such numbers.
    static Ints add_pairs(Ints sum, Ints a, Ints b) {
#if defined(SRHPM_AVXVNNI)
        return _mm256_dpwssd_avx_epi32(sum, a, b);
#else
        return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
#endif
    }
    static Ints  low4(Ints a) { return _mm256_and_si256(a, _mm256_set1_epi32(15)); }
    static Ints  high4(Ints a) { return _mm256_srli_epi32(a, 4); }
    template <int N> static Ints shift(Ints a) { return _mm256_slli_epi32(a, N); }
    static Ints  ints(int32_t x) { return _mm256_set1_epi32(x); }
    static Ints  shift_by(Ints a, Ints n) { return _mm256_sllv_epi32(a, n); }
    static Ints  less(Ints a, Ints b, Ints then, Ints otherwise) {
        return _mm256_blendv_epi8(otherwise, then, _mm256_cmpgt_epi32(b, a));
    }
    static Float as_float(Ints a) { return _mm256_castsi256_ps(a); }

    // ---- floats, for attention ----
    static Float load_float(const float * p) { return _mm256_loadu_ps(p); }
    static Float add(Float a, Float b) { return _mm256_add_ps(a, b); }
    static Float max(Float a, Float b) { return _mm256_max_ps(a, b); }
    static Ints  round(Float a) { return _mm256_cvtps_epi32(a); }
    static float sum(Float a) {
        __m128 v = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
        v        = _mm_add_ps(v, _mm_movehl_ps(v, v));
        return _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)));
    }
    // Adds the sum of each of four vectors to four floats.
    static void add_sums(const Float (&v)[4], float * out) {
        const Float  c = _mm256_hadd_ps(_mm256_hadd_ps(v[0], v[1]), _mm256_hadd_ps(v[2], v[3]));
        const __m128 e = _mm_add_ps(_mm256_castps256_ps128(c), _mm256_extractf128_ps(c, 1));
        _mm_storeu_ps(out, _mm_add_ps(_mm_loadu_ps(out), e));
    }
    static float most(Float a) {
        __m128 v = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
        v        = _mm_max_ps(v, _mm_movehl_ps(v, v));
        return _mm_cvtss_f32(_mm_max_ss(v, _mm_movehdup_ps(v)));
    }

    static float largest(const float * x) { return largest_x86(x); }
    static void  quantize(const float * x, float inverse, int8_t * q, int32_t * sum) { quantize_x86(x, inverse, q, sum); }
};

} // namespace
} // namespace srhpm
