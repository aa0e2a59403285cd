// SR-HPM: MUL_MAT and MUL_MAT_ID over weights that are floats.
#pragma once

#include "traits.h"

// Null for a product that stays upstream's.
ggml::cpu::tensor_traits * srhpm_floats_traits(const ggml_tensor * op);
