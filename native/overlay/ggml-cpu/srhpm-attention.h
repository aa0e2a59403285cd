// SR-HPM: FLASH_ATTN_EXT of a verify pass on our kernels.
#pragma once

#include "ggml-cpu-impl.h"

// Computes `op` if it is for us: few queries over an fp16 cache, with SRHPM_EXACT set and kernels not
// switched off. False: upstream's turn.
bool srhpm_flash_attn(const ggml_compute_params * params, ggml_tensor * op);
