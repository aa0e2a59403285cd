#include "pack.h"

#include "close.h"

#if defined(_MSC_VER)
#define SRHPM_INLINE __forceinline
#else
#define SRHPM_INLINE inline __attribute__((always_inline))
#endif

namespace srhpm {

namespace {

// Codes of a row's block from the planes of its panel: two groups (of four codes, a byte each) at a time.
template <int BITS> SRHPM_INLINE void get_codes(const uint8_t * planes, int row, uint64_t * two) {
    constexpr uint64_t ONES = blocks::ONES;
    const auto         get  = [&](int vector) {
        uint32_t four;
        memcpy(&four, planes + 64 * vector + 4 * row, 4);
        return (uint64_t) four;
    };
    for (int i = 0; i < 4; ++i) {
        two[i] = 0;
    }
    if constexpr (BITS == 8) {
        for (int i = 0; i < 4; ++i) {
            two[i] = get(2 * i) | get(2 * i + 1) << 32;
        }
    } else if constexpr (BITS >= 4) {
        for (int i = 0; i < 2; ++i) {
            const uint64_t both = get(2 * i) | get(2 * i + 1) << 32;
            two[i]              = both & 15 * ONES;
            two[i + 2]          = both >> 4 & 15 * ONES;
        }
    }
    constexpr int FIRST = BITS >= 4 ? 4 : 0; // of the vectors that hold the higher bits, and their place
    if constexpr (BITS == 2 || BITS == 6) {
        for (int v = 0; v < 2; ++v) {
            const uint64_t groups = get(FIRST + v);
            const uint64_t pairs  = groups | groups >> 2 << 32;
            two[2 * v] |= (pairs & 3 * ONES) << FIRST;
            two[2 * v + 1] |= (pairs >> 4 & 3 * ONES) << FIRST;
        }
    }
    if constexpr (BITS == 3) {
        const uint64_t fourth = (get(0) >> 6 & 3 * ONES) | (get(1) >> 4 & 12 * ONES) | (get(2) >> 2 & 48 * ONES);
        const uint64_t both[] = {get(0) | get(1) << 32, get(2) | fourth << 32};
        for (int i = 0; i < 2; ++i) {
            two[i]     = both[i] & 7 * ONES;
            two[i + 2] = both[i] >> 3 & 7 * ONES;
        }
    }
    if constexpr (BITS == 5) {
        const uint64_t groups = get(4);
        const uint64_t pairs  = groups | groups >> 1 << 32;
        for (int i = 0; i < 4; ++i) {
            two[i] |= (pairs >> 2 * i & ONES) << 4;
        }
    }
}

uint16_t two_bytes(const uint8_t * p) {
    uint16_t w;
    memcpy(&w, p, 2);
    return w;
}

// A scale as blocks::open gives it; only the low byte counts where one is held.
uint16_t get_scale(const Format & f, const uint8_t * at, int row) {
    return f.scale == Scale::half ? two_bytes(at + 2 * row) : at[row];
}

template <ggml_type TYPE, class Block> void unpack_rows(const uint8_t * panel, int64_t k, int rows, uint8_t * to) {
    static constexpr Format f = formats[format_index(TYPE)];

    const int64_t n         = k / BLOCK;
    const auto    at        = panel_layout(f, n);
    const size_t  row_bytes = ggml_row_size(TYPE, k);
    if constexpr (has_super(f)) {
        memset(to, 0, rows * row_bytes);
    }
    blocks::Codes o{};
    for (int64_t b = 0; b < n; ++b) {
        const uint8_t * codes  = panel + b * code_bytes(f);
        const uint8_t * scales = panel + at.scales + b * scales_bytes(f);
        const uint8_t * super  = panel + at.super + b / SUPER * super_bytes(f);
        for (int r = 0; r < rows; ++r) {
            get_codes<f.bits>(codes, r, o.code);
            for (int g = 0; g < f.groups; ++g) {
                o.scale[g] = get_scale(f, scales + g * scale_bytes(f), r);
                if constexpr (f.min && f.scale != Scale::nibbles) {
                    o.min[g] = get_scale(f, scales + (f.groups + g) * scale_bytes(f), r);
                }
            }
            if constexpr (has_super(f)) {
                o.super = two_bytes(super + 2 * r);
                if constexpr (f.min) {
                    o.super_min = two_bytes(super + 2 * (ROWS + r));
                }
            }
            blocks::close((Block *) (to + r * row_bytes), b, o);
        }
    }
}

} // namespace

void unpack(const Format & f, const uint8_t * panel, int64_t k, int rows, uint8_t * to) {
    switch (f.type) {
#define SRHPM_UNPACK(TYPE, BLOCK_TYPE) \
    case TYPE: return unpack_rows<TYPE, BLOCK_TYPE>(panel, k, rows, to)
        SRHPM_UNPACK(GGML_TYPE_Q4_0, block_q4_0);
        SRHPM_UNPACK(GGML_TYPE_Q4_1, block_q4_1);
        SRHPM_UNPACK(GGML_TYPE_Q5_0, block_q5_0);
        SRHPM_UNPACK(GGML_TYPE_Q5_1, block_q5_1);
        SRHPM_UNPACK(GGML_TYPE_Q8_0, block_q8_0);
        SRHPM_UNPACK(GGML_TYPE_Q2_K, block_q2_K);
        SRHPM_UNPACK(GGML_TYPE_Q3_K, block_q3_K);
        SRHPM_UNPACK(GGML_TYPE_Q4_K, block_q4_K);
        SRHPM_UNPACK(GGML_TYPE_Q5_K, block_q5_K);
        SRHPM_UNPACK(GGML_TYPE_Q6_K, block_q6_K);
        SRHPM_UNPACK(GGML_TYPE_IQ4_NL, block_iq4_nl);
        SRHPM_UNPACK(GGML_TYPE_IQ4_XS, block_iq4_xs);
        SRHPM_UNPACK(GGML_TYPE_IQ3_S, block_iq3_s);
        SRHPM_UNPACK(GGML_TYPE_IQ3_XXS, block_iq3_xxs);
        SRHPM_UNPACK(GGML_TYPE_IQ2_S, block_iq2_s);
        SRHPM_UNPACK(GGML_TYPE_IQ2_XS, block_iq2_xs);
        SRHPM_UNPACK(GGML_TYPE_IQ2_XXS, block_iq2_xxs);
        SRHPM_UNPACK(GGML_TYPE_MXFP4, block_mxfp4);
        SRHPM_UNPACK(GGML_TYPE_NVFP4, block_nvfp4);
#undef SRHPM_UNPACK
        default: GGML_ABORT("srhpm: no packed form of this type");
    }
}

} // namespace srhpm
