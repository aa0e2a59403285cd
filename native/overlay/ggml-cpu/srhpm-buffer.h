// SR-HPM: a weight buffer whose matrix products run on the small-batch kernels.
#pragma once

#include "ggml-backend.h"

#include <vector>

// Puts our buffer type in front of the CPU's others, so that weights it takes land in it, if our
// kernels are on (srhpm-switch.h).
void srhpm_add_buffer_type(std::vector<ggml_backend_buffer_type_t> & types);
