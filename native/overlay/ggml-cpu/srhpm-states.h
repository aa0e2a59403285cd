// SR-HPM: gated delta nets write their states to where they are kept.
//
// Upstream's operation puts the states after the last tokens behind its output, from where a copy
// brings them to the cache: each is written, read and written again. Where the copy follows the
// operation, this lets it write to the copy's target and skips the copy, as upstream does on CUDA.
#pragma once

#include "ggml.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ggml_cgraph;
struct ggml_compute_params;

// Computes the node at `at` and the copy of its states if it is such an operation. Returns how many
// nodes after it are done with too; 0: nothing was computed.
int srhpm_write_states(const struct ggml_cgraph * graph, int at, const struct ggml_compute_params * params);

#ifdef __cplusplus
}

// Where the operation in hand of this thread shall write its newest state, or null: behind its output;
// and how many floats further each older one.
float * srhpm_states();
int64_t srhpm_states_stride();
#endif
