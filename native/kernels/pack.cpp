#include "pack.h"

#include "blocks.h"

#include <cmath>

namespace srhpm {

namespace {

// ---- writing ----------------------------------------------------------------------------------

// Puts the codes of a row's block into the planes of its panel.
void put_codes(const Format & f, const uint8_t * code, int row, uint8_t * planes) {
    uint32_t group[GROUPS]; // four codes each, one per byte
    memcpy(group, code, sizeof(group));
    const auto put = [&](int vector, uint32_t four) { memcpy(planes + 64 * vector + 4 * row, &four, 4); };
    const auto top = [&](int from, int first, int last, int width) {
        // the bits [from, from + width) of groups first..last, side by side
        const uint32_t mask  = width == 1 ? 0x01010101u : 0x03030303u;
        uint32_t       bytes = 0;
        for (int g = first; g < last; ++g) {
            bytes |= (group[g] >> from & mask) << width * (g - first);
        }
        return bytes;
    };
    if (f.bits == 8) {
        for (int g = 0; g < GROUPS; ++g) {
            put(g, group[g]);
        }
        return;
    }
    int vector = 0;
    if (f.bits >= 4) {
        for (; vector < 4; ++vector) {
            put(vector, (group[vector] & 0x0f0f0f0fu) | (group[vector + 4] & 0x0f0f0f0fu) << 4);
        }
    } else if (f.bits == 3) {
        const uint32_t fourth = group[3] | group[7] << 3;
        for (; vector < 3; ++vector) {
            put(vector, group[vector] | group[vector + 4] << 3 | (fourth >> 2 * vector & 0x03030303u) << 6);
        }
    }
    if (f.bits == 2 || f.bits == 6) {
        put(vector++, top(f.bits - 2, 0, 4, 2));
        put(vector++, top(f.bits - 2, 4, 8, 2));
    } else if (f.bits == 5) {
        put(vector++, top(4, 0, 8, 1));
    }
}

void put_scale(const Format & f, uint8_t * at, int row, uint16_t bits) {
    if (f.scale == Scale::half) {
        memcpy(at + 2 * row, &bits, 2);
    } else {
        at[row] = (uint8_t) bits;
    }
}

template <class Block>
void pack_panels(const Format & f, const void * from, int64_t k, int64_t rows, int64_t first, int64_t last, uint8_t * to) {
    const int64_t n         = k / BLOCK;
    const auto    at        = panel_layout(f, n);
    const size_t  row_bytes = ggml_row_size(f.type, k);
    Opened        o{};
    for (int64_t p = first; p < last; ++p) {
        uint8_t * panel = to + p * at.size;
        memset(panel + at.scales, 0, at.size - at.scales);
        for (int r = 0; r < ROWS; ++r) {
            const int64_t row = p * ROWS + r;
            if (row >= rows) {
                for (int64_t b = 0; b < n; ++b) {
                    const uint8_t none[BLOCK] = {};
                    put_codes(f, none, r, panel + b * code_bytes(f));
                }
                continue;
            }
            const auto * x = (const Block *) ((const uint8_t *) from + row * row_bytes);
            for (int64_t b = 0; b < n; ++b) {
                blocks::open(x, b, o);
                put_codes(f, o.code, r, panel + b * code_bytes(f));
                uint8_t * scales = panel + at.scales + b * scales_bytes(f);
                for (int g = 0; g < f.groups; ++g) {
                    put_scale(f, scales + g * scale_bytes(f), r, o.scale[g]);
                    if (f.min && f.scale != Scale::nibbles) {
                        put_scale(f, scales + (f.groups + g) * scale_bytes(f), r, o.min[g]);
                    }
                }
                if (has_super(f) && b % SUPER == 0) {
                    uint8_t * super = panel + at.super + b / SUPER * super_bytes(f);
                    memcpy(super + 2 * r, &o.super, 2);
                    if (f.min) {
                        memcpy(super + 2 * (ROWS + r), &o.super_min, 2);
                    }
                }
            }
        }
    }
}

// ---- reading back -----------------------------------------------------------------------------

int get_code(const Format & f, const uint8_t * planes, int row, int k) {
    const int  g    = k / 4;
    const auto byte = [&](int vector) { return planes[64 * vector + 4 * row + k % 4]; };
    switch (f.bits) {
        case 8: return byte(g);
        case 6: return (byte(g % 4) >> g / 4 * 4 & 15) | (byte(4 + g / 4) >> 2 * (g % 4) & 3) << 4;
        case 5: return (byte(g % 4) >> g / 4 * 4 & 15) | (byte(4) >> g & 1) << 4;
        case 4: return byte(g % 4) >> g / 4 * 4 & 15;
        case 3: {
            const int fourth = byte(0) >> 6 | byte(1) >> 6 << 2 | byte(2) >> 6 << 4;
            return (g % 4 < 3 ? byte(g % 4) : fourth) >> g / 4 * 3 & 7;
        }
        default: return byte(g / 4) >> 2 * (g % 4) & 3;
    }
}

float half(const uint8_t * p) {
    ggml_fp16_t h;
    memcpy(&h, p, 2);
    return ggml_fp16_to_fp32(h);
}

float get_scale(const Format & f, const uint8_t * at, int row, float super) {
    switch (f.scale) {
        case Scale::half: return half(at + 2 * row);
        case Scale::super: return super * (float) (int8_t) at[row];
        case Scale::nibbles: return super * (float) (at[row] & 15);
        case Scale::e8m0: return std::ldexp(1.0f, at[row] - 128);
        default: {
            const int e = at[row] >> 3;
            const int m = at[row] & 7;
            return std::ldexp(e ? 1.0f + (float) m / 8 : (float) m / 8, (e ? e : 1) - 8);
        }
    }
}

} // namespace

size_t packed_size(const Format & f, int64_t k, int64_t rows) {
    return panel_layout(f, k / BLOCK).size * (size_t) ((rows + ROWS - 1) / ROWS);
}

bool packable(ggml_type type, int64_t k) {
    return format_index(type) >= 0 && k > 0 && k % BLOCK == 0 && k % ggml_blck_size(type) == 0;
}

void pack(const Format & f, const void * from, int64_t k, int64_t rows, int64_t first, int64_t last, uint8_t * to) {
    switch (f.type) {
#define SRHPM_PACK(TYPE, BLOCK_TYPE) \
    case TYPE: return pack_panels<BLOCK_TYPE>(f, from, k, rows, first, last, to)
        SRHPM_PACK(GGML_TYPE_Q4_0, block_q4_0);
        SRHPM_PACK(GGML_TYPE_Q4_1, block_q4_1);
        SRHPM_PACK(GGML_TYPE_Q5_0, block_q5_0);
        SRHPM_PACK(GGML_TYPE_Q5_1, block_q5_1);
        SRHPM_PACK(GGML_TYPE_Q8_0, block_q8_0);
        SRHPM_PACK(GGML_TYPE_Q2_K, block_q2_K);
        SRHPM_PACK(GGML_TYPE_Q3_K, block_q3_K);
        SRHPM_PACK(GGML_TYPE_Q4_K, block_q4_K);
        SRHPM_PACK(GGML_TYPE_Q5_K, block_q5_K);
        SRHPM_PACK(GGML_TYPE_Q6_K, block_q6_K);
        SRHPM_PACK(GGML_TYPE_IQ4_NL, block_iq4_nl);
        SRHPM_PACK(GGML_TYPE_IQ4_XS, block_iq4_xs);
        SRHPM_PACK(GGML_TYPE_IQ3_S, block_iq3_s);
        SRHPM_PACK(GGML_TYPE_IQ3_XXS, block_iq3_xxs);
        SRHPM_PACK(GGML_TYPE_IQ2_S, block_iq2_s);
        SRHPM_PACK(GGML_TYPE_IQ2_XS, block_iq2_xs);
        SRHPM_PACK(GGML_TYPE_IQ2_XXS, block_iq2_xxs);
        SRHPM_PACK(GGML_TYPE_MXFP4, block_mxfp4);
        SRHPM_PACK(GGML_TYPE_NVFP4, block_nvfp4);
#undef SRHPM_PACK
        default: GGML_ABORT("srhpm: no packed form of this type");
    }
}

void unpack_row(const Format & f, const uint8_t * packed, int64_t k, int64_t row, float * to) {
    const int64_t   n     = k / BLOCK;
    const auto      at    = panel_layout(f, n);
    const uint8_t * panel = packed + row / ROWS * at.size;
    const int       r     = (int) (row % ROWS);
    for (int64_t b = 0; b < n; ++b) {
        const uint8_t * codes  = panel + b * code_bytes(f);
        const uint8_t * scales = panel + at.scales + b * scales_bytes(f);
        const uint8_t * super  = panel + at.super + b / SUPER * super_bytes(f);
        const float     d      = has_super(f) ? half(super + 2 * r) * f.factor : 0.0f;
        const float     m      = has_super(f) && f.min ? half(super + 2 * (ROWS + r)) : 0.0f;
        for (int i = 0; i < BLOCK; ++i) {
            const int   g     = i / (BLOCK / f.groups);
            const float scale = get_scale(f, scales + g * scale_bytes(f), r, d);
            const int   code  = get_code(f, codes, r, i);
            int         value = f.map == Map::table ? f.values[code] : f.map == Map::doubled ? 2 * code - f.offset : code - f.offset;
            float       min   = 0.0f;
            if (f.scale == Scale::nibbles) {
                min = m * (float) (scales[g * scale_bytes(f) + r] >> 4);
            } else if (f.min) {
                min = get_scale(f, scales + (f.groups + g) * scale_bytes(f), r, m);
            }
            *to++ = f.min ? scale * (float) value - min : scale * (float) value;
        }
    }
}

} // namespace srhpm
