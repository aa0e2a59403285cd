// SR-HPM: prompts that a GPU computes with weights from RAM.
#pragma once

#include "ggml-backend.h"
#include "srhpm-exact.h"

#include <cstring>

// Whether weights in this buffer of the CPU can be lent to a GPU although they are not in ggml's
// layout: getting a tensor from ours unpacks it.
static inline bool srhpm_lends(ggml_backend_buffer_t buffer) {
    return std::strcmp(ggml_backend_buffer_name(buffer), "CPU_SRHPM") == 0;
}

// Whether an operation is computed where its neighbours are, rather than where its weights or the size of
// the batch lead it. A vector costs nothing to move, and each token gets the result it has alone.
static inline bool srhpm_follows(const ggml_tensor * op) {
    return srhpm_exact_columns() > 0 && (op->op == GGML_OP_MUL || op->op == GGML_OP_ADD);
}

// Copies bytes of weights in such a buffer to a tensor of a GPU, in order with what `to` does. Returns
// false, and does nothing, where `from` is in another buffer.
bool srhpm_lend(ggml_backend_t to, const ggml_tensor * from, ggml_tensor * copy, size_t offset, size_t size);
