// SR-HPM: ggml's weight formats taken apart into codes and scales, 32 weights at a time.
#pragma once

#include "format.h"

#define GGML_COMMON_DECL_C
#include "ggml-common.h"
#define GGML_COMMON_IMPL_CPP
#include "ggml-common.h"

#include <cstdint>
#include <cstring>

namespace srhpm {

// 32 weights of a row. Scales and mins are bits as the packed form holds them.
struct Opened {
    uint8_t  code[BLOCK];
    uint16_t scale[2];
    uint16_t min[2];
    uint16_t super;
    uint16_t super_min;
};

namespace blocks {

inline void nibbles(const uint8_t * q, uint8_t * code) {
    for (int i = 0; i < 16; ++i) {
        code[i]      = q[i] & 15;
        code[i + 16] = q[i] >> 4;
    }
}

// Adds bit i of `bits` to code i as bit `to`.
inline void add_bits(uint32_t bits, int to, uint8_t * code) {
    for (int i = 0; i < BLOCK; ++i) {
        code[i] |= (bits >> i & 1) << to;
    }
}

inline uint32_t word(const void * p) {
    uint32_t w;
    memcpy(&w, p, 4);
    return w;
}

inline void open(const block_q4_0 * x, int64_t b, Opened & o) {
    nibbles(x[b].qs, o.code);
    o.scale[0] = x[b].d;
}

inline void open(const block_q4_1 * x, int64_t b, Opened & o) {
    nibbles(x[b].qs, o.code);
    o.scale[0] = x[b].d;
    o.min[0]   = x[b].m ^ 0x8000; // ours is taken off
}

inline void open(const block_q5_0 * x, int64_t b, Opened & o) {
    nibbles(x[b].qs, o.code);
    add_bits(word(x[b].qh), 4, o.code);
    o.scale[0] = x[b].d;
}

inline void open(const block_q5_1 * x, int64_t b, Opened & o) {
    nibbles(x[b].qs, o.code);
    add_bits(word(x[b].qh), 4, o.code);
    o.scale[0] = x[b].d;
    o.min[0]   = x[b].m ^ 0x8000;
}

inline void open(const block_q8_0 * x, int64_t b, Opened & o) {
    for (int i = 0; i < BLOCK; ++i) {
        o.code[i] = (uint8_t) (x[b].qs[i] + 128);
    }
    o.scale[0] = x[b].d;
}

inline void open(const block_iq4_nl * x, int64_t b, Opened & o) {
    nibbles(x[b].qs, o.code);
    o.scale[0] = x[b].d;
}

inline void open(const block_mxfp4 * x, int64_t b, Opened & o) {
    nibbles(x[b].qs, o.code);
    o.scale[0] = x[b].e;
}

inline void open(const block_nvfp4 * x, int64_t b, Opened & o) {
    const block_nvfp4 & s = x[b / 2];
    for (int g = 0; g < 2; ++g) {
        const int       part = (int) (b % 2) * 2 + g;
        const uint8_t * q    = s.qs + part * 8;
        for (int i = 0; i < 8; ++i) {
            o.code[16 * g + i]     = q[i] & 15;
            o.code[16 * g + i + 8] = q[i] >> 4;
        }
        o.scale[g] = s.d[part] == 0x7f ? 0 : s.d[part] & 0x7f; // that NaN counts as 0
    }
}

// K-quants hold 128 weights as 32 bytes of 2-bit (or 4-bit, 64 weights) codes: 32 weights at one shift.
inline void two_bits(const uint8_t * qs, int i, uint8_t * code) {
    const uint8_t * q = qs + i / 4 * 32;
    for (int k = 0; k < BLOCK; ++k) {
        code[k] = q[k] >> 2 * (i % 4) & 3;
    }
}

inline void half_bytes(const uint8_t * qs, int i, uint8_t * code) {
    const uint8_t * q = qs + i / 2 * 32;
    for (int k = 0; k < BLOCK; ++k) {
        code[k] = q[k] >> 4 * (i % 2) & 15;
    }
}

inline void open(const block_q2_K * x, int64_t b, Opened & o) {
    const block_q2_K & s = x[b / SUPER];
    const int          i = (int) (b % SUPER);
    two_bits(s.qs, i, o.code);
    o.scale[0]  = s.scales[2 * i]; // scale low, min high, as here
    o.scale[1]  = s.scales[2 * i + 1];
    o.super     = s.d;
    o.super_min = s.dmin;
}

inline void open(const block_q3_K * x, int64_t b, Opened & o) {
    const block_q3_K & s = x[b / SUPER];
    const int          i = (int) (b % SUPER);
    two_bits(s.qs, i, o.code);
    for (int k = 0; k < BLOCK; ++k) {
        o.code[k] |= (s.hmask[k] >> i & 1) << 2;
    }
    for (int g = 0; g < 2; ++g) {
        // 16 scales of 6 bits: 4 low bits in the nibbles of 8 bytes, 2 high bits in 4 more
        const int n    = 2 * i + g;
        const int low  = s.scales[n % 8] >> 4 * (n / 8) & 15;
        const int high = s.scales[8 + n % 4] >> 2 * (n / 4) & 3;
        o.scale[g]     = (uint8_t) ((low | high << 4) - 32);
    }
    o.super = s.d;
}

// Scale and min i of the 8 pairs of 6 bits in 12 bytes of Q4_K and Q5_K.
inline void scale_min(const uint8_t * s, int i, Opened & o) {
    if (i < 4) {
        o.scale[0] = s[i] & 63;
        o.min[0]   = s[i + 4] & 63;
    } else {
        o.scale[0] = (s[i + 4] & 15) | s[i - 4] >> 6 << 4;
        o.min[0]   = s[i + 4] >> 4 | s[i] >> 6 << 4;
    }
}

inline void open(const block_q4_K * x, int64_t b, Opened & o) {
    const block_q4_K & s = x[b / SUPER];
    const int          i = (int) (b % SUPER);
    half_bytes(s.qs, i, o.code);
    scale_min(s.scales, i, o);
    o.super     = s.d;
    o.super_min = s.dmin;
}

inline void open(const block_q5_K * x, int64_t b, Opened & o) {
    const block_q5_K & s = x[b / SUPER];
    const int          i = (int) (b % SUPER);
    half_bytes(s.qs, i, o.code);
    for (int k = 0; k < BLOCK; ++k) {
        o.code[k] |= (s.qh[k] >> i & 1) << 4;
    }
    scale_min(s.scales, i, o);
    o.super     = s.d;
    o.super_min = s.dmin;
}

inline void open(const block_q6_K * x, int64_t b, Opened & o) {
    const block_q6_K & s = x[b / SUPER];
    const int          i = (int) (b % SUPER);
    // of 128 weights, 64 bytes hold the low bits (two halves of 32, then their high nibbles)
    const uint8_t * low  = s.ql + i / 4 * 64 + i % 2 * 32;
    const uint8_t * high = s.qh + i / 4 * 32;
    for (int k = 0; k < BLOCK; ++k) {
        o.code[k] = (low[k] >> 4 * (i % 4 / 2) & 15) | (high[k] >> 2 * (i % 4) & 3) << 4;
    }
    o.scale[0] = (uint8_t) s.scales[2 * i];
    o.scale[1] = (uint8_t) s.scales[2 * i + 1];
    o.super    = s.d;
}

inline void open(const block_iq4_xs * x, int64_t b, Opened & o) {
    const block_iq4_xs & s = x[b / SUPER];
    const int            i = (int) (b % SUPER);
    nibbles(s.qs + 16 * i, o.code);
    const int scale = (s.scales_l[i / 2] >> 4 * (i % 2) & 15) | (s.scales_h >> 2 * i & 3) << 4;
    o.scale[0]      = (uint8_t) (scale - 32);
    o.super         = s.d;
}

// ---- grids: N magnitudes per entry and a sign each ------------------------------------------------

// Codes ascend with the value: magnitude m of MAGNITUDES is code MAGNITUDES + m, negative
// MAGNITUDES - 1 - m.
template <int MAGNITUDES> inline uint8_t signed_code(int m, bool negative) {
    return (uint8_t) (negative ? MAGNITUDES - 1 - m : MAGNITUDES + m);
}

// IQ2: 8, 25, 43 (0x08, 0x19, 0x2b).
inline int magnitude_iq2(uint8_t g) {
    return g >> 4; // 0, 1, 2
}
// IQ3_XXS: 4, 12 .. 52, 62.
inline int magnitude_iq3_xxs(uint8_t g) {
    return g >> 3;
}
// IQ3_S: 1, 3 .. 15.
inline int magnitude_iq3_s(uint8_t g) {
    return g >> 1;
}

inline void grid8(uint64_t grid, uint8_t signs, uint8_t * code) {
    for (int i = 0; i < 8; ++i) {
        code[i] = signed_code<3>(magnitude_iq2((uint8_t) (grid >> 8 * i)), signs >> i & 1);
    }
}

inline void open(const block_iq2_xxs * x, int64_t b, Opened & o) {
    const block_iq2_xxs & s     = x[b / SUPER];
    const uint16_t *      q     = s.qs + 4 * (b % SUPER);
    const uint32_t        index = word(q);
    const uint32_t        signs = word(q + 2);
    for (int l = 0; l < 4; ++l) {
        grid8(iq2xxs_grid[index >> 8 * l & 255], ksigns_iq2xs[signs >> 7 * l & 127], o.code + 8 * l);
    }
    o.scale[0] = (uint16_t) (2 * (signs >> 28) + 1);
    o.super    = s.d;
}

inline void odd_scales(uint8_t both, Opened & o) {
    o.scale[0] = (uint16_t) (2 * (both & 15) + 1);
    o.scale[1] = (uint16_t) (2 * (both >> 4) + 1);
}

inline void open(const block_iq2_xs * x, int64_t b, Opened & o) {
    const block_iq2_xs & s = x[b / SUPER];
    const int            i = (int) (b % SUPER);
    for (int l = 0; l < 4; ++l) {
        const uint16_t q = s.qs[4 * i + l];
        grid8(iq2xs_grid[q & 511], ksigns_iq2xs[q >> 9], o.code + 8 * l);
    }
    odd_scales(s.scales[i], o);
    o.super = s.d;
}

inline void open(const block_iq2_s * x, int64_t b, Opened & o) {
    const block_iq2_s & s = x[b / SUPER];
    const int           i = (int) (b % SUPER);
    for (int l = 0; l < 4; ++l) {
        const int index = s.qs[4 * i + l] | (s.qh[i] >> 2 * l & 3) << 8;
        grid8(iq2s_grid[index], s.qs[QK_K / 8 + 4 * i + l], o.code + 8 * l);
    }
    odd_scales(s.scales[i], o);
    o.super = s.d;
}

inline void open(const block_iq3_xxs * x, int64_t b, Opened & o) {
    const block_iq3_xxs & s     = x[b / SUPER];
    const int             i     = (int) (b % SUPER);
    const uint32_t        signs = word(s.qs + QK_K / 4 + 4 * i);
    for (int l = 0; l < 8; ++l) {
        const uint32_t grid = iq3xxs_grid[s.qs[8 * i + l]];
        const uint8_t  sign = ksigns_iq2xs[signs >> 7 * (l / 2) & 127] >> 4 * (l % 2);
        for (int k = 0; k < 4; ++k) {
            o.code[4 * l + k] = signed_code<8>(magnitude_iq3_xxs((uint8_t) (grid >> 8 * k)), sign >> k & 1);
        }
    }
    o.scale[0] = (uint16_t) (2 * (signs >> 28) + 1);
    o.super    = s.d;
}

inline void open(const block_iq3_s * x, int64_t b, Opened & o) {
    const block_iq3_s & s = x[b / SUPER];
    const int           i = (int) (b % SUPER);
    for (int l = 0; l < 8; ++l) {
        const uint32_t grid = iq3s_grid[s.qs[8 * i + l] | (s.qh[i] >> l & 1) << 8];
        const uint8_t  sign = s.signs[4 * i + l / 2] >> 4 * (l % 2);
        for (int k = 0; k < 4; ++k) {
            o.code[4 * l + k] = signed_code<8>(magnitude_iq3_s((uint8_t) (grid >> 8 * k)), sign >> k & 1);
        }
    }
    o.scale[0] = (uint16_t) (2 * (s.scales[i / 2] >> 4 * (i % 2) & 15) + 1);
    o.super    = s.d;
}

} // namespace blocks
} // namespace srhpm
