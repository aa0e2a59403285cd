// A stand-in for a small GPU, so that plans and code for one are tested on machines without: a device
// of type GPU with memory of its own, which the CPU cannot read. It computes on the CPU.
#pragma once

#include "ggml-backend.h"

// Registers the device STANDIN0 with so many bytes. Once per process, and after the CPU's backend.
ggml_backend_dev_t stand_in_gpu(size_t memory);

// The same, not yet registered.
ggml_backend_reg_t stand_in_backend(size_t memory);

// What it has computed: products of 32 tokens and more, of fewer, and everything.
struct StandInCounts {
    int long_products;
    int short_products;
    int nodes; // of all kinds
    int graphs; // parts of a model's graph between two changes of side
};
StandInCounts stand_in_counts();
