// SR-HPM: the small-batch kernels of one instruction set, and their choice at run time.
#pragma once

#include "format.h"

namespace srhpm {

// A product of packed weights and columns of activations.
struct Product {
    const uint8_t *            weights; // panels, one after the other
    int64_t                    blocks;  // K / 32
    int64_t                    rows;    // of the weights; the last panel may be filled up
    const Activation * const * columns; // n_columns pointers to `blocks` blocks each
    float * const *            out;     // n_columns pointers to `rows` floats each
    int64_t                    n_columns;
};

// Computes rows [16 * first, 16 * last) of a product.
using Multiply = void (*)(const Product & product, int64_t first, int64_t last);

// A product of weights that are floats, in ggml's own layout, and columns of floats.
struct FloatProduct {
    const uint8_t *       weights; // rows of k of one of `float_types`
    size_t                stride;  // bytes from a row to the next
    int64_t               k;       // any number
    int64_t               rows;
    const float * const * columns; // n_columns pointers to k floats each
    float * const *       out;     // n_columns pointers to `rows` floats each
    int64_t               n_columns;
};

// Computes rows [16 * first, 16 * last) of a product, as far as there are any.
using MultiplyFloats = void (*)(const FloatProduct & product, int64_t first, int64_t last);

inline constexpr ggml_type float_types[] = {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16};
constexpr int              N_FLOAT_TYPES = 3;

// Index into `float_types`, -1 for another type.
constexpr int float_index(ggml_type type) {
    for (int i = 0; i < N_FLOAT_TYPES; ++i) {
        if (float_types[i] == type) {
            return i;
        }
    }
    return -1;
}

// Quantizes blocks * 32 floats, rounding to nearest even, to [-127, 127], with the sums that products
// with weights of format `f` need. `blocks` is a multiple of span(f).
using Quantize = void (*)(const float * x, Activation * out, int64_t blocks, const Format & f);

constexpr int     MAX_ROWS = 8;   // of queries in a task of attention
constexpr int64_t MAX_HEAD = 576; // floats of a head: DeepSeek's

// Rows of queries (of one or several heads and tokens) that share a key/value head.
struct Attention {
    int64_t         dk, dv;   // floats of a key and of a value: multiples of 16
    int64_t         n_kv;     // positions
    const uint8_t * k;        // fp16, `k_stride` bytes from one to the next
    const uint8_t * v;
    size_t          k_stride;
    size_t          v_stride;
    float           scale;
    int             rows;
    const float *   q[MAX_ROWS];
    const uint8_t * mask[MAX_ROWS];  // n_kv fp16 each, or null
    float           slope[MAX_ROWS]; // of the mask
    float           sink[MAX_ROWS];  // -infinity where there is none
    float *         out[MAX_ROWS];   // dv floats each
};

// softmax(scale * q k + slope * mask) v. A row's result does not depend on the other rows, nor on
// masked positions at the end.
using Attend = void (*)(const Attention & task);

// The kernels of one instruction set. Column j of a product is bit-identical whatever the other
// columns are, how many there are, and however rows are shared among threads.
struct Kernels {
    const char *   isa;
    Quantize       quantize;
    Attend         attend;
    Multiply       multiply[N_FORMATS];
    MultiplyFloats multiply_floats[N_FLOAT_TYPES];
};

// Each compiled in a translation unit of its own, with flags of its own; null where it is not built.
const Kernels * kernels_avx512vnni();
const Kernels * kernels_avxvnni();
const Kernels * kernels_avx2();
const Kernels * kernels_neon();
const Kernels * kernels_portable();

// All that this machine can run, best first; ends with null.
const Kernels * const * usable_kernels();

// The best of them, or the one that SRHPM_ISA names. Null where that is none of them, or where only
// the portable ones are left.
const Kernels * chosen_kernels();

} // namespace srhpm
