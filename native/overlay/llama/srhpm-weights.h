// SR-HPM: which kind of RAM a weight goes to.
#pragma once

#include "ggml-backend.h"

#include <algorithm>
#include <cstring>

// Our buffer type in front of a GPU's own kind of RAM. That one is pinned and so faster to upload from,
// but only prompts are uploaded; each token reads the weights in RAM. Without our kernels, or with
// --no-repack, it is not in the list.
template <class List> void srhpm_weights_first(List & types) {
    std::stable_partition(types.begin(), types.end(), [](const auto & entry) {
        return std::strcmp(ggml_backend_buft_name(entry.second), "CPU_SRHPM") == 0;
    });
}
