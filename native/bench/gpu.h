// SR-HPM bench: what a GPU takes for products, transfers, launches and changes of side.
#pragma once

#include "cpu.h"

#include <string>
#include <vector>

namespace bench {

class Gpu : public Engine {
  public:
    // By the name under which llama-server lists it. Throws std::runtime_error where there is no such GPU, or
    // it does not start.
    explicit Gpu(const std::string & name);
    ~Gpu() override;
    Gpu(const Gpu &)             = delete;
    Gpu & operator=(const Gpu &) = delete;

    ggml_backend_buffer_type_t plain() const override;
    double                     compute(ggml_cgraph * graph) const override;

    const char * name() const;
    const char * description() const;

    // Bytes of its memory that were free at first.
    size_t free() const { return free_bytes; }

    // Whether it multiplies such weights by m columns.
    bool multiplies(ggml_type type, int64_t cols, int64_t rows, int64_t m) const;

    // Milliseconds of a graph with one tiny operation, until its end is known.
    double launch() const;

    // Milliseconds of a change between CPU and GPU in a scheduled graph, with next to nothing to copy.
    double crossing(const Cpu & cpu) const;

    // Bytes per second of a transfer of so many bytes from common RAM, and to it.
    struct Link {
        double up, down;
    };
    Link link(size_t bytes) const;

  private:
    ggml_backend_dev_t device;
    ggml_backend_t     backend    = nullptr;
    size_t             free_bytes = 0;
};

} // namespace bench
