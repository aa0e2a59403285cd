// SR-HPM: how weights lie in memory for the small-batch kernels.
//
// Rows are interleaved in panels of 16, K is cut into blocks of 32. A *group* is 4 consecutive
// weights of each of the 16 rows, row after row: 64 bytes of 8-bit codes, the operand of one 4-way
// dot product over 16 rows. A block has 8 groups. Codes of fewer bits are cut into *planes*:
//
//   4-bit plane  4 vectors of 64 bytes; vector p holds group p low and group p+4 high
//   3-bit plane  3 vectors; vector v holds group v at bit 0 and group v+4 at bit 3; their bits 6 and 7, put
//                together, are a fourth such vector
//   2-bit plane  2 vectors; vector v holds group 4v+i at bit 2i
//   1-bit plane  1 vector; group g at bit g
//   8-bit plane  8 vectors, one per group
//
// A 5-bit code is a 4-bit plane plus a 1-bit plane, a 6-bit code 4 + 2: decoding a group is a shift, a
// mask and an or for all 16 rows at once. 3-bit codes as 2 + 1 took twice the instructions.
//
// A code stands for a small integer `value`, and weight = scale * value - min, where scale and min
// belong to `groups` equal parts of the block. Integer and scale are the ones of the original
// format, so nothing is lost: IQ3 and IQ2 grids hold 8 and 3 magnitudes only, so magnitude and sign
// take 16 and 6 values, 4 and 3 bits, and the grid look-up happens once, when a model is loaded.
//
// A panel: [codes of all blocks][scales of all blocks][super-scales], each part 64-byte aligned.
#pragma once

#include "ggml.h"

#include <cstddef>
#include <cstdint>

namespace srhpm {

constexpr int ROWS       = 16; // of a panel
constexpr int BLOCK      = 32; // weights along K
constexpr int SUPER      = 8;  // blocks that share a super-scale: 256 weights
constexpr int GROUPS     = 8;  // of a block

// How a code becomes `value + offset`, an unsigned byte.
enum class Map : uint8_t {
    identity,
    doubled, // twice the code
    table,   // an entry of a 16-byte table
};

// How the scale of one group of blocks is held, for each of the 16 rows.
enum class Scale : uint8_t {
    half,    // fp16
    super,   // int8 times an fp16 of 256 weights; the min is another int8 times another fp16
    nibbles, // scale in the low, min in the high 4 bits, each times an fp16 of 256 weights
    e8m0,    // exponent, halved (as MXFP4's values are doubled)
    ue4m3,   // 7-bit float, halved
};

// A weight format, known at compile time to the kernels.
struct Format {
    ggml_type type;
    int8_t    bits; // of a code: 2..6 or 8
    int8_t    groups; // scales per block: 1, or 2 (16 weights each)
    Scale     scale;
    bool      min;
    Map       map;
    int16_t   offset; // added to values so that they are unsigned
    int16_t   max;    // largest value + offset
    float     factor; // of all scales
    int8_t    values[16]; // of the table
};

inline constexpr Format formats[] = {
    // type               bits groups scale          min    map            offset max factor values
    {GGML_TYPE_Q4_0,      4, 1, Scale::half,    false, Map::identity, 8,   15,  1.0f,   {}},
    {GGML_TYPE_Q4_1,      4, 1, Scale::half,    true,  Map::identity, 0,   15,  1.0f,   {}},
    {GGML_TYPE_Q5_0,      5, 1, Scale::half,    false, Map::identity, 16,  31,  1.0f,   {}},
    {GGML_TYPE_Q5_1,      5, 1, Scale::half,    true,  Map::identity, 0,   31,  1.0f,   {}},
    {GGML_TYPE_Q8_0,      8, 1, Scale::half,    false, Map::identity, 128, 255, 1.0f,   {}},
    {GGML_TYPE_Q2_K,      2, 2, Scale::nibbles, true,  Map::identity, 0,   3,   1.0f,   {}},
    {GGML_TYPE_Q3_K,      3, 2, Scale::super,   false, Map::identity, 4,   7,   1.0f,   {}},
    {GGML_TYPE_Q4_K,      4, 1, Scale::super,   true,  Map::identity, 0,   15,  1.0f,   {}},
    {GGML_TYPE_Q5_K,      5, 1, Scale::super,   true,  Map::identity, 0,   31,  1.0f,   {}},
    {GGML_TYPE_Q6_K,      6, 2, Scale::super,   false, Map::identity, 32,  63,  1.0f,   {}},
    {GGML_TYPE_IQ4_NL,    4, 1, Scale::half,    false, Map::table,    127, 240, 1.0f,
     {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}},
    {GGML_TYPE_IQ4_XS,    4, 1, Scale::super,   false, Map::table,    127, 240, 1.0f,
     {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}},
    // magnitudes 1, 3 .. 15: affine
    {GGML_TYPE_IQ3_S,     4, 1, Scale::super,   false, Map::doubled,  15,  30,  1.0f,   {}},
    // magnitudes 4, 12 .. 52 and 62, halved
    {GGML_TYPE_IQ3_XXS,   4, 1, Scale::super,   false, Map::table,    31,  62,  0.5f,
     {-31, -26, -22, -18, -14, -10, -6, -2, 2, 6, 10, 14, 18, 22, 26, 31}},
    // magnitudes 8, 25, 43
    {GGML_TYPE_IQ2_S,     3, 2, Scale::super,   false, Map::table,    43,  86,  0.125f,
     {-43, -25, -8, 8, 25, 43}},
    {GGML_TYPE_IQ2_XS,    3, 2, Scale::super,   false, Map::table,    43,  86,  0.125f,
     {-43, -25, -8, 8, 25, 43}},
    {GGML_TYPE_IQ2_XXS,   3, 1, Scale::super,   false, Map::table,    43,  86,  0.125f,
     {-43, -25, -8, 8, 25, 43}},
    {GGML_TYPE_MXFP4,     4, 1, Scale::e8m0,    false, Map::table,    12,  24,  1.0f,
     {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}},
    {GGML_TYPE_NVFP4,     4, 2, Scale::ue4m3,   false, Map::table,    12,  24,  1.0f,
     {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}},
};
constexpr int N_FORMATS = sizeof(formats) / sizeof(formats[0]);

// Index into `formats`, -1 for a type that has none.
constexpr int format_index(ggml_type type) {
    for (int i = 0; i < N_FORMATS; ++i) {
        if (formats[i].type == type) {
            return i;
        }
    }
    return -1;
}

// Bytes of the codes of a block of 16 rows.
constexpr size_t code_bytes(const Format & f) {
    return (size_t) f.bits * ROWS * BLOCK / 8;
}

constexpr bool has_super(const Format & f) {
    return f.scale == Scale::super || f.scale == Scale::nibbles;
}

// Bytes of one scale (or min) of the 16 rows.
constexpr size_t scale_bytes(const Format & f) {
    return f.scale == Scale::half ? 2 * ROWS : ROWS;
}

// Bytes of the scales of a block: those of each group, then their mins.
constexpr size_t scales_bytes(const Format & f) {
    const size_t mins = f.min && f.scale != Scale::nibbles ? 2 : 1;
    return scale_bytes(f) * f.groups * mins;
}

// Bytes of the super-scales of 8 blocks: fp16 scales, then fp16 mins.
constexpr size_t super_bytes(const Format & f) {
    return has_super(f) ? (f.min ? 4 : 2) * ROWS : 0;
}

constexpr size_t align64(size_t n) {
    return (n + 63) / 64 * 64;
}

// Where the parts of a panel over `blocks` blocks of K begin, in bytes.
struct PanelLayout {
    size_t scales;
    size_t super;
    size_t size;
};

constexpr PanelLayout panel_layout(const Format & f, int64_t blocks) {
    PanelLayout at{};
    at.scales = (size_t) blocks * code_bytes(f); // a multiple of 64
    at.super  = at.scales + align64((size_t) blocks * scales_bytes(f));
    at.size   = at.super + align64((size_t) (blocks + SUPER - 1) / SUPER * super_bytes(f));
    return at;
}

// Blocks of activations that share a scale: as many as share a super-scale, so that the integer sums
// of a group need one multiplication by the weights' scale for all columns, and `d` comes in once in
// 256 weights (upstream quantizes activations for these formats likewise).
constexpr int span(const Format & f) {
    return has_super(f) ? SUPER : 1;
}

// 32 activations of one token. `sums` is what a weight's offset or min needs: for each scale group the
// sum of q times -offset, or, for formats with a min, times `d`. Where mins are integers it is the plain
// sums of both groups, or, with one group, those of an even block and of this one.
struct Activation {
    float d;
    union {
        int32_t i[2];
        float   f[2];
        int16_t h[2];
    } sums;
    int32_t unused;
    int8_t  q[BLOCK];
};
static_assert(sizeof(Activation) == 48, "the kernels step by this");

// Activations that are all smaller than this count as 0: 127 / size must be a float.
constexpr float SMALLEST = 0x1p-120f;

} // namespace srhpm
