// SR-HPM bench: the CPU backend, reached as llama.cpp reaches it, so that it may be a library that is
// loaded at run time.
#pragma once

#include "engine.h"
#include "ggml-cpu.h"

#include <cstdint>

namespace bench {

class Cpu : public Engine {
  public:
    // Throws std::runtime_error where there is no CPU backend.
    explicit Cpu(int threads);
    ~Cpu() override;
    Cpu(const Cpu &)             = delete;
    Cpu & operator=(const Cpu &) = delete;

    // Our buffer type; null where it is switched off or has no kernels for this processor.
    ggml_backend_buffer_type_t ours() const;

    // What upstream alone would choose for such a matrix: the first other buffer type that takes it.
    ggml_backend_buffer_type_t stock(ggml_type type, int64_t cols, int64_t rows) const;

    ggml_backend_buffer_type_t plain() const override;

    // With all threads.
    double compute(ggml_cgraph * graph) const override;

    // For a scheduler over several backends.
    ggml_backend_t handle() const { return backend; }

  private:
    template <class F> F function(const char * name) const;

    ggml_backend_dev_t           device;
    ggml_backend_t               backend = nullptr;
    ggml_backend_buffer_type_t * extra   = nullptr; // ends with null; its own null: none
    ggml_threadpool_t            threads = nullptr;
};

} // namespace bench
