// SR-HPM: prompts that a GPU computes with weights from RAM.
#pragma once

#include "ggml-backend.h"

#include <cstdlib>
#include <cstring>

// Whether weights in this buffer of the CPU can be lent to a GPU although they are not in ggml's
// layout: getting a tensor from ours unpacks it.
static inline bool srhpm_lends(ggml_backend_buffer_t buffer) {
    return std::strcmp(ggml_backend_buffer_name(buffer), "CPU_SRHPM") == 0;
}

// Whether an operation is computed where its neighbours are, rather than where its weights or the size of
// the batch lead it: all but products. What they read (norms, biases, convolutions) costs nothing to
// move, a crossing between CPU and GPU does. Rows of a table stay where the table is.
// SRHPM_OFFLOAD=any leaves all to upstream.
static inline bool srhpm_follows(const ggml_tensor * op) {
    static const bool on = [] {
        const char * text = std::getenv("SRHPM_OFFLOAD");
        return !text || std::strcmp(text, "any") != 0;
    }();
    return on && op->op != GGML_OP_MUL_MAT && op->op != GGML_OP_MUL_MAT_ID && op->op != GGML_OP_GET_ROWS;
}

// Copies bytes of weights in such a buffer to a tensor of a GPU, in order with what `to` does. Returns
// false, and does nothing, where `from` is in another buffer.
bool srhpm_lend(ggml_backend_t to, const ggml_tensor * from, ggml_tensor * copy, size_t offset, size_t size);
