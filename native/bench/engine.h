// SR-HPM bench: what computes graphs: the CPU, or a device beside it.
#pragma once

#include "ggml-backend.h"

namespace bench {

class Engine {
  public:
    virtual ~Engine() = default;

    // Activations and results lie there.
    virtual ggml_backend_buffer_type_t plain() const = 0;

    // Runs a graph to its end; returns milliseconds.
    virtual double compute(ggml_cgraph * graph) const = 0;
};

} // namespace bench
