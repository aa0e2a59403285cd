// SR-HPM: NEON with the dot product of bytes (SDOT, Armv8.2 and optional there). One vector holds a
// group of 4 rows.
//
// SDOT takes both factors signed. Codes up to 127 are the same either way; larger ones are made
// signed, which costs one exclusive or. A lane of a vector can be the factor of all rows, so a
// block's 32 activations are two registers and none is spread.
//
// No form with SMMLA (i8mm): it multiplies 2 rows by 2 columns over 8 weights, twice SDOT's work, but
// groups hold 4 weights. For 4 rows, a block and M columns SDOT needs 8 M instructions. SMMLA needs
// 4 M, and 8 to join pairs of groups, 2 M to join pairs of columns, M to part them again: no fewer
// up to 8 columns, and there 208 for 256 if all 16 rows share the joined columns (counted, not timed).
// To gain more the panels would have to hold 8 weights of a row side by side, which takes single
// columns their SDOT.
#pragma once

#include "format.h"

#include <arm_neon.h>

#include <cstdint>
#include <cstring>

namespace srhpm {
namespace { // of each translation unit its own

struct Simd {
    static constexpr int VROWS   = 4;
    static constexpr int LARGEST = 127;
    static constexpr int TILE    = 8; // sums 8, activations 16, weights and what decodes them 8
    static constexpr int CHAINS  = 1;
    static constexpr int FLOAT_TILE = 6; // columns at a time where weights are floats: 24 sums

    using Bytes = uint8x16_t;
    using Table = uint8x16_t;
    using Ints  = int32x4_t;
    using Float = float32x4_t;

    static void  fetch_ahead(const uint8_t * p) { __builtin_prefetch(p, 0, 2); }
    static void  fetch_soon(const uint8_t * p) { __builtin_prefetch(p, 0, 3); }
    static Bytes load(const uint8_t * p) { return vld1q_u8(p); }
    static Bytes bytes(uint8_t b) { return vdupq_n_u8(b); }
    static Bytes and_(Bytes a, Bytes b) { return vandq_u8(a, b); }
    static Bytes or_(Bytes a, Bytes b) { return vorrq_u8(a, b); }
    static Bytes xor_(Bytes a, Bytes b) { return veorq_u8(a, b); }
    static constexpr bool BYTE_SHIFTS = true;
    template <int N> static Bytes right(Bytes a) { return vshrq_n_u8(a, N); }
    template <int N> static Bytes left(Bytes a) { return vshlq_n_u8(a, N); }

    static Table table(const uint8_t * t) { return vld1q_u8(t); }
    static Bytes look_up(Table t, Bytes i) { return vqtbl1q_u8(t, i); }

    using Weights = int8x16_t;
    template <bool SIGNED> static Weights weights(Bytes w) { return vreinterpretq_s8_u8(w); }

    template <int MAX> struct Dot {
        Ints sum;
        void start(int32_t first) { sum = vdupq_n_s32(first); }
        Ints total(int32_t) const { return sum; }
        template <bool SIGNED, int G, int STEP, bool LAST> void add(Weights w, const int8_t * a) {
            static_assert(SIGNED || MAX <= LARGEST, "weights of this size need the signed path");
            sum = vdotq_laneq_s32(sum, w, vld1q_s8(a + G / 4 * 16), G % 4);
        }
    };

    static Ints  add(Ints a, Ints b) { return vaddq_s32(a, b); }
    static Float to_float(Ints a) { return vcvtq_f32_s32(a); }
    static Float zero() { return vdupq_n_f32(0.0f); }
    static Float set(float x) { return vdupq_n_f32(x); }
    static Float mul(Float a, Float b) { return vmulq_f32(a, b); }
    static Float fma(Float a, Float b, Float c) { return vfmaq_f32(c, a, b); }
    static Float fnma(Float a, Float b, Float c) { return vfmsq_f32(c, a, b); }
    static void  store(float * p, Float a) { vst1q_f32(p, a); }

    static Float from_half(const uint8_t * p) {
        return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p)));
    }
    static Float from_bfloat(const uint8_t * p) {
        return vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(p)), 16));
    }
    static Ints from_int8(const uint8_t * p) {
        return vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u8(four_bytes(p)))));
    }
    static Ints from_uint8(const uint8_t * p) {
        return vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(vmovl_u8(four_bytes(p)))));
    }
    static uint8x8_t four_bytes(const uint8_t * p) {
        uint32_t bits;
        memcpy(&bits, p, 4);
        return vcreate_u8(bits);
    }
    // Two numbers of each row that 16 bits hold: the first low.
    static Ints  pair(Ints a, Ints b) { return vsliq_n_s32(a, b, 16); }
    // Adds the two products of such numbers.
    static Ints add_pairs(Ints sum, Ints a, Ints b) {
        const int16x8_t x = vreinterpretq_s16_s32(a);
        const int16x8_t y = vreinterpretq_s16_s32(b);
        return vaddq_s32(sum, vpaddq_s32(vmull_s16(vget_low_s16(x), vget_low_s16(y)), vmull_high_s16(x, y)));
    }
    static Ints  low4(Ints a) { return vandq_s32(a, vdupq_n_s32(15)); }
    static Ints  high4(Ints a) { return vshrq_n_s32(a, 4); }
    template <int N> static Ints shift(Ints a) { return vshlq_n_s32(a, N); }
    static Ints  ints(int32_t x) { return vdupq_n_s32(x); }
    static Ints  shift_by(Ints a, Ints n) { return vshlq_s32(a, n); }
    static Ints  less(Ints a, Ints b, Ints then, Ints otherwise) {
        return vbslq_s32(vcltq_s32(a, b), then, otherwise);
    }
    static Float as_float(Ints a) { return vreinterpretq_f32_s32(a); }

    // ---- floats, for attention ----
    static Float load_float(const float * p) { return vld1q_f32(p); }
    static Float add(Float a, Float b) { return vaddq_f32(a, b); }
    static Float max(Float a, Float b) { return vmaxq_f32(a, b); }
    static Ints  round(Float a) { return vcvtnq_s32_f32(a); }
    static float sum(Float a) { return vaddvq_f32(a); }
    // Adds the sum of each of four vectors to four floats.
    static void add_sums(const Float (&v)[4], float * out) {
        const Float all = vpaddq_f32(vpaddq_f32(v[0], v[1]), vpaddq_f32(v[2], v[3]));
        vst1q_f32(out, vaddq_f32(vld1q_f32(out), all));
    }
    static float most(Float a) { return vmaxvq_f32(a); }

    // As in quantize-x86.h.
    static float largest(const float * x) {
        Float most = zero();
        for (int i = 0; i < 8; ++i) {
            most = vmaxq_f32(most, vabsq_f32(vld1q_f32(x + 4 * i)));
        }
        return vmaxvq_f32(most);
    }
    static void quantize(const float * x, float inverse, int8_t * q, int32_t * sum) {
        for (int i = 0; i < 2; ++i) {
            int16x4_t n[4];
            for (int k = 0; k < 4; ++k) {
                n[k] = vqmovn_s32(vcvtnq_s32_f32(vmulq_f32(vld1q_f32(x + 16 * i + 4 * k), set(inverse))));
            }
            const int8x16_t bytes =
                vcombine_s8(vqmovn_s16(vcombine_s16(n[0], n[1])), vqmovn_s16(vcombine_s16(n[2], n[3])));
            vst1q_s8(q + 16 * i, bytes);
            sum[i] = vaddlvq_s8(bytes);
        }
    }
};

} // namespace
} // namespace srhpm
