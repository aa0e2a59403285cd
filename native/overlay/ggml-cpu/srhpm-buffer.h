// SR-HPM: a weight buffer whose matrix products run on the small-batch kernels.
#pragma once

#include "ggml-backend.h"

#include <vector>

// Puts our buffer type in front of the CPU's others, so that weights it takes land in it. Not with
// SRHPM_KERNELS=off, and not on machines whose instructions the kernels have no form for.
void srhpm_add_buffer_type(std::vector<ggml_backend_buffer_type_t> & types);
