// SR-HPM: MUL_MAT and MUL_MAT_ID over packed weights.
#pragma once

#include "traits.h"

// What tensors in our buffer carry as `extra`.
ggml::cpu::tensor_traits * srhpm_mul_mat_traits();
