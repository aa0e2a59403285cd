// SR-HPM: codes and scales put together again as ggml's weight formats: what blocks.h takes apart.
#pragma once

#include "blocks.h"

#include <array>

namespace srhpm {
namespace blocks {

// `close(x, b, o)` writes 32 weights of a row. A superblock must hold zeros before its first ones:
// its parts share bytes, so bits are only ever added.
//
// Eight codes are worked on at a time, as one number: they fill less than their bytes, so nothing
// crosses from one to the next. They stay in registers: a load of what was just stored by halves waits
// for the stores, which cost four fifths of the speed.

constexpr uint64_t ONES = 0x0101010101010101u;

// 32 weights of a row, as `Opened`, but for codes a byte each of four numbers.
struct Codes {
    uint64_t code[4];
    uint16_t scale[2];
    uint16_t min[2];
    uint16_t super;
    uint16_t super_min;
};

inline uint64_t eight(const uint8_t * p) {
    uint64_t w;
    memcpy(&w, p, 8);
    return w;
}

inline void put_eight(uint64_t w, uint8_t * p) {
    memcpy(p, &w, 8);
}

// Bit `from` of 8 bytes, side by side.
inline uint8_t bits_of(uint64_t bytes, int from) {
    return (uint8_t) ((bytes >> from & ONES) * 0x0102040810204080u >> 56);
}

inline void close_nibbles(const Codes & o, uint8_t * q) {
    put_eight(o.code[0] | o.code[2] << 4, q);
    put_eight(o.code[1] | o.code[3] << 4, q + 8);
}

// Of 5-bit codes.
inline void close_fives(const Codes & o, uint8_t * q, uint8_t * top) {
    put_eight((o.code[0] & 15 * ONES) | (o.code[2] & 15 * ONES) << 4, q);
    put_eight((o.code[1] & 15 * ONES) | (o.code[3] & 15 * ONES) << 4, q + 8);
    for (int i = 0; i < 4; ++i) {
        top[i] = bits_of(o.code[i], 4);
    }
}

inline void close(block_q4_0 * x, int64_t b, const Codes & o) {
    close_nibbles(o, x[b].qs);
    x[b].d = o.scale[0];
}

inline void close(block_q4_1 * x, int64_t b, const Codes & o) {
    close_nibbles(o, x[b].qs);
    x[b].d = o.scale[0];
    x[b].m = o.min[0] ^ 0x8000;
}

inline void close(block_q5_0 * x, int64_t b, const Codes & o) {
    close_fives(o, x[b].qs, x[b].qh);
    x[b].d = o.scale[0];
}

inline void close(block_q5_1 * x, int64_t b, const Codes & o) {
    close_fives(o, x[b].qs, x[b].qh);
    x[b].d = o.scale[0];
    x[b].m = o.min[0] ^ 0x8000;
}

inline void close(block_q8_0 * x, int64_t b, const Codes & o) {
    for (int i = 0; i < 4; ++i) {
        put_eight(o.code[i] ^ 128 * ONES, (uint8_t *) x[b].qs + 8 * i);
    }
    x[b].d = o.scale[0];
}

inline void close(block_iq4_nl * x, int64_t b, const Codes & o) {
    close_nibbles(o, x[b].qs);
    x[b].d = o.scale[0];
}

inline void close(block_mxfp4 * x, int64_t b, const Codes & o) {
    close_nibbles(o, x[b].qs);
    x[b].e = (uint8_t) o.scale[0];
}

// A scale's sign bit, which no encoder sets and no decoder reads, is lost, as is that NaN counts as 0.
// 0x7f can only have been 0xff, which upstream does not take for that NaN.
inline void close(block_nvfp4 * x, int64_t b, const Codes & o) {
    block_nvfp4 & s = x[b / 2];
    for (int g = 0; g < 2; ++g) {
        const int part = (int) (b % 2) * 2 + g;
        put_eight(o.code[2 * g] | o.code[2 * g + 1] << 4, s.qs + part * 8);
        s.d[part] = o.scale[g] == 0x7f ? 0xff : (uint8_t) o.scale[g];
    }
}

// Adds the bits [from, from + width) of each code at `shift`.
inline void add_part(const Codes & o, int from, int width, int shift, uint8_t * q) {
    const uint64_t mask = ((1u << width) - 1) * ONES;
    for (int i = 0; i < 4; ++i) {
        put_eight(eight(q + 8 * i) | (o.code[i] >> from & mask) << shift, q + 8 * i);
    }
}

inline void close(block_q2_K * x, int64_t b, const Codes & o) {
    block_q2_K & s = x[b / SUPER];
    const int    i = (int) (b % SUPER);
    add_part(o, 0, 2, 2 * (i % 4), s.qs + i / 4 * 32);
    s.scales[2 * i]     = (uint8_t) o.scale[0];
    s.scales[2 * i + 1] = (uint8_t) o.scale[1];
    s.d                 = o.super;
    s.dmin              = o.super_min;
}

inline void close(block_q3_K * x, int64_t b, const Codes & o) {
    block_q3_K & s = x[b / SUPER];
    const int    i = (int) (b % SUPER);
    add_part(o, 0, 2, 2 * (i % 4), s.qs + i / 4 * 32);
    add_part(o, 2, 1, i, s.hmask);
    for (int g = 0; g < 2; ++g) {
        const int n     = 2 * i + g;
        const int scale = (uint8_t) (o.scale[g] + 32);
        s.scales[n % 8] |= (uint8_t) ((scale & 15) << 4 * (n / 8));
        s.scales[8 + n % 4] |= (uint8_t) (scale >> 4 << 2 * (n / 4));
    }
    s.d = o.super;
}

inline void close_scale_min(uint8_t * s, int i, const Codes & o) {
    const int scale = o.scale[0];
    const int min   = o.min[0];
    if (i < 4) {
        s[i] |= (uint8_t) scale;
        s[i + 4] |= (uint8_t) min;
    } else {
        s[i + 4] |= (uint8_t) ((scale & 15) | min << 4);
        s[i - 4] |= (uint8_t) (scale >> 4 << 6);
        s[i] |= (uint8_t) (min >> 4 << 6);
    }
}

inline void close(block_q4_K * x, int64_t b, const Codes & o) {
    block_q4_K & s = x[b / SUPER];
    const int    i = (int) (b % SUPER);
    add_part(o, 0, 4, 4 * (i % 2), s.qs + i / 2 * 32);
    close_scale_min(s.scales, i, o);
    s.d    = o.super;
    s.dmin = o.super_min;
}

inline void close(block_q5_K * x, int64_t b, const Codes & o) {
    block_q5_K & s = x[b / SUPER];
    const int    i = (int) (b % SUPER);
    add_part(o, 0, 4, 4 * (i % 2), s.qs + i / 2 * 32);
    add_part(o, 4, 1, i, s.qh);
    close_scale_min(s.scales, i, o);
    s.d    = o.super;
    s.dmin = o.super_min;
}

inline void close(block_q6_K * x, int64_t b, const Codes & o) {
    block_q6_K & s = x[b / SUPER];
    const int    i = (int) (b % SUPER);
    add_part(o, 0, 4, 4 * (i % 4 / 2), s.ql + i / 4 * 64 + i % 2 * 32);
    add_part(o, 4, 2, 2 * (i % 4), s.qh + i / 4 * 32);
    s.scales[2 * i]     = (int8_t) (uint8_t) o.scale[0];
    s.scales[2 * i + 1] = (int8_t) (uint8_t) o.scale[1];
    s.d                 = o.super;
}

inline void close(block_iq4_xs * x, int64_t b, const Codes & o) {
    block_iq4_xs & s     = x[b / SUPER];
    const int      i     = (int) (b % SUPER);
    const int      scale = (uint8_t) (o.scale[0] + 32);
    close_nibbles(o, s.qs + 16 * i);
    s.scales_l[i / 2] |= (uint8_t) ((scale & 15) << 4 * (i % 2));
    s.scales_h |= (uint16_t) (scale >> 4 << 2 * i);
    s.d = o.super;
}

// ---- grids: no two entries are alike, so magnitudes lead back to the index --------------------------

// Eight codes as magnitudes, a byte each, and signs. IQ3: negative ones are 7 - m, others 8 + m.
inline uint64_t magnitudes_iq3(uint64_t code, uint8_t & signs) {
    const uint64_t negative = ~code >> 3 & ONES;
    signs                   = bits_of(negative, 0);
    return (code ^ negative * 7) & 7 * ONES;
}

// IQ2: 2 - m and 3 + m. Bytes stay below 128, so none borrows from the next.
inline uint64_t magnitudes_iq2(uint64_t code, uint8_t & signs) {
    const uint64_t negative = ~(code + 125 * ONES) >> 7 & ONES;
    signs                   = bits_of(negative, 0);
    return (code ^ negative * 7) - 3 * ONES - 2 * negative;
}

// The magnitudes of four weights of IQ3 as one number: 3 bits each.
inline uint32_t number_iq3(uint32_t m) {
    m |= m >> 5; // byte 1 beside byte 0, byte 3 beside byte 2
    return (m & 63) | (m >> 10 & 63 << 6);
}

// Of eight of IQ2: digits to base 3.
inline uint32_t number_iq2(uint64_t m) {
    constexpr uint32_t powers = 1u << 24 | 3u << 16 | 9u << 8 | 27u;
    return ((uint32_t) m * powers >> 24) + 81 * ((uint32_t) (m >> 32) * powers >> 24);
}

using IndexIq3 = std::array<uint16_t, 4096>;
using IndexIq2 = std::array<uint16_t, 6561>;

template <class Magnitude> IndexIq3 index_iq3(const uint32_t * grid, int n, Magnitude && magnitude) {
    IndexIq3 at{};
    for (int i = 0; i < n; ++i) {
        uint32_t m = 0;
        for (int k = 0; k < 4; ++k) {
            m |= (uint32_t) magnitude((uint8_t) (grid[i] >> 8 * k)) << 8 * k;
        }
        at[number_iq3(m)] = (uint16_t) i;
    }
    return at;
}

inline IndexIq2 index_iq2(const uint64_t * grid, int n) {
    IndexIq2 at{};
    for (int i = 0; i < n; ++i) {
        uint64_t m = 0;
        for (int k = 0; k < 8; ++k) {
            m |= (uint64_t) magnitude_iq2((uint8_t) (grid[i] >> 8 * k)) << 8 * k;
        }
        at[number_iq2(m)] = (uint16_t) i;
    }
    return at;
}

inline const IndexIq3 INDEX_IQ3_S   = index_iq3(iq3s_grid, 512, magnitude_iq3_s);
inline const IndexIq3 INDEX_IQ3_XXS = index_iq3(iq3xxs_grid, 256, magnitude_iq3_xxs);
inline const IndexIq2 INDEX_IQ2_S   = index_iq2(iq2s_grid, 1024);
inline const IndexIq2 INDEX_IQ2_XS  = index_iq2(iq2xs_grid, 512);
inline const IndexIq2 INDEX_IQ2_XXS = index_iq2(iq2xxs_grid, 256);

inline void close(block_iq2_xxs * x, int64_t b, const Codes & o) {
    block_iq2_xxs & s     = x[b / SUPER];
    uint32_t        index = 0;
    uint32_t        signs = (uint32_t) (o.scale[0] / 2) << 28;
    for (int l = 0; l < 4; ++l) {
        uint8_t sign;
        index |= (uint32_t) INDEX_IQ2_XXS[number_iq2(magnitudes_iq2(o.code[l], sign))] << 8 * l;
        signs |= (uint32_t) (sign & 127) << 7 * l; // the eighth makes their number even
    }
    memcpy(s.qs + 4 * (b % SUPER), &index, 4);
    memcpy(s.qs + 4 * (b % SUPER) + 2, &signs, 4);
    s.d = o.super;
}

inline uint8_t close_odd_scales(const Codes & o) {
    return (uint8_t) (o.scale[0] / 2 | o.scale[1] / 2 << 4);
}

inline void close(block_iq2_xs * x, int64_t b, const Codes & o) {
    block_iq2_xs & s = x[b / SUPER];
    const int      i = (int) (b % SUPER);
    for (int l = 0; l < 4; ++l) {
        uint8_t        sign;
        const uint16_t index = INDEX_IQ2_XS[number_iq2(magnitudes_iq2(o.code[l], sign))];
        s.qs[4 * i + l]      = (uint16_t) (index | (sign & 127) << 9);
    }
    s.scales[i] = close_odd_scales(o);
    s.d         = o.super;
}

inline void close(block_iq2_s * x, int64_t b, const Codes & o) {
    block_iq2_s & s = x[b / SUPER];
    const int     i = (int) (b % SUPER);
    for (int l = 0; l < 4; ++l) {
        const uint16_t index = INDEX_IQ2_S[number_iq2(magnitudes_iq2(o.code[l], s.qs[QK_K / 8 + 4 * i + l]))];
        s.qs[4 * i + l]      = (uint8_t) index;
        s.qh[i] |= (uint8_t) (index >> 8 << 2 * l);
    }
    s.scales[i] = close_odd_scales(o);
    s.d         = o.super;
}

inline void close(block_iq3_xxs * x, int64_t b, const Codes & o) {
    block_iq3_xxs & s     = x[b / SUPER];
    const int       i     = (int) (b % SUPER);
    uint32_t        signs = (uint32_t) (o.scale[0] / 2) << 28;
    for (int l = 0; l < 4; ++l) {
        uint8_t        sign;
        const uint64_t m         = magnitudes_iq3(o.code[l], sign);
        s.qs[8 * i + 2 * l]      = (uint8_t) INDEX_IQ3_XXS[number_iq3((uint32_t) m)];
        s.qs[8 * i + 2 * l + 1]  = (uint8_t) INDEX_IQ3_XXS[number_iq3((uint32_t) (m >> 32))];
        signs |= (uint32_t) (sign & 127) << 7 * l;
    }
    memcpy(s.qs + QK_K / 4 + 4 * i, &signs, 4);
    s.d = o.super;
}

inline void close(block_iq3_s * x, int64_t b, const Codes & o) {
    block_iq3_s & s = x[b / SUPER];
    const int     i = (int) (b % SUPER);
    for (int l = 0; l < 4; ++l) {
        const uint64_t m    = magnitudes_iq3(o.code[l], s.signs[4 * i + l]);
        const uint16_t low  = INDEX_IQ3_S[number_iq3((uint32_t) m)];
        const uint16_t high = INDEX_IQ3_S[number_iq3((uint32_t) (m >> 32))];
        s.qs[8 * i + 2 * l]     = (uint8_t) low;
        s.qs[8 * i + 2 * l + 1] = (uint8_t) high;
        s.qh[i] |= (uint8_t) ((low >> 8 | high >> 8 << 1) << 2 * l);
    }
    s.scales[i / 2] |= (uint8_t) (o.scale[0] / 2 << 4 * (i % 2));
    s.d = o.super;
}

} // namespace blocks
} // namespace srhpm
