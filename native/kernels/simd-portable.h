// SR-HPM: GCC's and Clang's generic vectors, for machines without a form of their own. One vector
// holds a group of 4 rows, as any machine with 16-byte registers does.
#pragma once

#include "format.h"

#include <cstdint>
#include <cstring>

namespace srhpm {
namespace { // of each translation unit its own

struct Simd {
    static constexpr int VROWS   = 4;
    static constexpr int LARGEST = 255;
    static constexpr int TILE    = 2;
    static constexpr int CHAINS  = 1;
    static constexpr int FLOAT_TILE = 2; // columns at a time where weights are floats: 8 sums

    typedef uint8_t  Bytes __attribute__((vector_size(16)));
    typedef uint8_t  Table __attribute__((vector_size(16)));
    typedef int32_t  Ints __attribute__((vector_size(16)));
    typedef uint32_t Words __attribute__((vector_size(16)));
    typedef float    Float __attribute__((vector_size(16)));

    static void  fetch_ahead(const uint8_t * p) { __builtin_prefetch(p, 0, 2); }
    static void  fetch_soon(const uint8_t * p) { __builtin_prefetch(p, 0, 3); }
    static Bytes load(const uint8_t * p) {
        Bytes r;
        memcpy(&r, p, sizeof(r));
        return r;
    }
    static Bytes bytes(uint8_t b) { return Bytes{} + b; }
    static Bytes and_(Bytes a, Bytes b) { return a & b; }
    static Bytes or_(Bytes a, Bytes b) { return a | b; }
    static Bytes xor_(Bytes a, Bytes b) { return a ^ b; }
    static constexpr bool BYTE_SHIFTS = true;
    template <int N> static Bytes right(Bytes a) { return a >> N; }
    template <int N> static Bytes left(Bytes a) { return a << N; }

    static Table table(const uint8_t * t) { return load(t); }
    static Bytes look_up(Table t, Bytes a) {
        Bytes r;
        for (int i = 0; i < 16; ++i) {
            r[i] = t[a[i] & 15];
        }
        return r;
    }

    using Weights = Bytes;
    template <bool SIGNED> static Weights weights(Bytes w) { return w; }

    template <int MAX> struct Dot {
        Ints sum;
        Ints total(int32_t) const { return sum; }
        void start(int32_t first) { sum = ints(first); }
        template <bool SIGNED, int G, int STEP, bool LAST> void add(Weights w, const int8_t * a) {
            a += 4 * G;
            for (int r = 0; r < VROWS; ++r) {
                sum[r] += w[4 * r] * a[0] + w[4 * r + 1] * a[1] + w[4 * r + 2] * a[2] + w[4 * r + 3] * a[3];
            }
        }
    };

    static Ints  add(Ints a, Ints b) { return a + b; }
    static Float to_float(Ints a) { return __builtin_convertvector(a, Float); }
    static Float zero() { return Float{}; }
    static Float set(float x) { return Float{x, x, x, x}; }
    static Float mul(Float a, Float b) { return a * b; }
    // two roundings: a fused one is a function call on machines without it
    static Float fma(Float a, Float b, Float c) { return a * b + c; }
    static Float fnma(Float a, Float b, Float c) { return c - a * b; }
    static void  store(float * p, Float a) { memcpy(p, &a, sizeof(a)); }

    static Float from_half(const uint8_t * p) {
        Float r;
        for (int i = 0; i < VROWS; ++i) {
            ggml_fp16_t h;
            memcpy(&h, p + 2 * i, 2);
            r[i] = ggml_fp16_to_fp32(h);
        }
        return r;
    }
    static Float from_bfloat(const uint8_t * p) {
        uint16_t b[VROWS];
        memcpy(b, p, sizeof(b));
        return as_float(shift<16>(Ints{b[0], b[1], b[2], b[3]}));
    }
    static Ints from_int8(const uint8_t * p) {
        return Ints{(int8_t) p[0], (int8_t) p[1], (int8_t) p[2], (int8_t) p[3]};
    }
    static Ints from_uint8(const uint8_t * p) { return Ints{p[0], p[1], p[2], p[3]}; }
    // Two numbers of each row that 16 bits hold: the first low.
    static Ints pair(Ints a, Ints b) { return (a & 0xffff) | shift<16>(b); }
    // Adds the two products of such numbers.
    static Ints add_pairs(Ints sum, Ints a, Ints b) {
        return sum + (shift<16>(a) >> 16) * (shift<16>(b) >> 16) + (a >> 16) * (b >> 16);
    }
    static Ints low4(Ints a) { return a & 15; }
    static Ints high4(Ints a) { return a >> 4; }
    template <int N> static Ints shift(Ints a) { return (Ints) ((Words) a << N); }
    static Ints  ints(int32_t x) { return Ints{x, x, x, x}; }
    static Ints  shift_by(Ints a, Ints n) { return (Ints) ((Words) a << (Words) (n & 31)); }
    static Ints  less(Ints a, Ints b, Ints then, Ints otherwise) {
        const Ints mask = a < b;
        return (then & mask) | (otherwise & ~mask);
    }
    static Float as_float(Ints a) { return (Float) a; }

    // ---- floats, for attention ----
    static Float load_float(const float * p) {
        Float r;
        memcpy(&r, p, sizeof(r));
        return r;
    }
    static Float add(Float a, Float b) { return a + b; }
    static Float max(Float a, Float b) {
        const Ints mask = a > b;
        return (Float) (((Ints) a & mask) | ((Ints) b & ~mask));
    }
    // adding and taking off 1.5 * 2^23 rounds to nearest even
    static Ints  round(Float a) { return __builtin_convertvector((a + 12582912.0f) - 12582912.0f, Ints); }
    static float sum(Float a) { return (a[0] + a[2]) + (a[1] + a[3]); }
    // Adds the sum of each of four vectors to four floats.
    static void add_sums(const Float (&v)[4], float * out) {
        for (int i = 0; i < 4; ++i) {
            out[i] += sum(v[i]);
        }
    }
    static float most(Float a) {
        const float x = a[0] > a[2] ? a[0] : a[2];
        const float y = a[1] > a[3] ? a[1] : a[3];
        return x > y ? x : y;
    }

    // As in quantize-x86.h.
    static float largest(const float * x) {
        float most = 0.0f;
        for (int i = 0; i < 32; ++i) {
            const float size = x[i] < 0.0f ? -x[i] : x[i];
            most             = size > most ? size : most;
        }
        return most;
    }
    static void quantize(const float * x, float inverse, int8_t * q, int32_t * sum) {
        sum[0] = sum[1] = 0;
        for (int i = 0; i < 32; ++i) {
            // adding and taking off 1.5 * 2^23 rounds to nearest even
            q[i] = (int8_t) ((x[i] * inverse + 12582912.0f) - 12582912.0f);
            sum[i / 16] += q[i];
        }
    }
};

} // namespace
} // namespace srhpm
