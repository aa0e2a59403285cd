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

// Quantizes blocks * 32 floats, rounding to nearest even, to [-127, 127], with the sums that products
// with weights of format `f` need.
using Quantize = void (*)(const float * x, Activation * out, int64_t blocks, const Format & f);

// The kernels of one instruction set. Column j of a product is bit-identical whatever the other
// columns are, how many there are, and however rows are shared among threads.
struct Kernels {
    const char * isa;
    Quantize     quantize;
    Multiply     multiply[N_FORMATS];
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
