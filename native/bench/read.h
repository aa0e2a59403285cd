// SR-HPM bench: how fast the same threads can read the same bytes when they do nothing else.
#pragma once

#include "cpu.h"
#include "weights.h"

#include <atomic>

namespace bench {

// Reads bytes (a multiple of two cache lines) and returns something that depends on all of them.
uint64_t read_bytes(const uint8_t * from, size_t n);

// One pass over all copies of the weights.
class Read {
  public:
    // How far ahead of the reading the caches are told, in bytes, ends with -1; 0: not at all.
    static const int AHEAD[];

    // `bytes` of each copy; `ahead` is one of AHEAD.
    Read(const Cpu & cpu, const Weights & weights, size_t bytes, int ahead);
    ~Read();
    Read(const Read &)             = delete;
    Read & operator=(const Read &) = delete;

    // Milliseconds.
    double run();

    // One thread's part: pieces until none is left.
    void work();

  private:
    const Cpu &           cpu;
    const Weights &       weights;
    const size_t          bytes;
    const int             ahead;
    std::atomic<size_t>   next{0};
    std::atomic<uint64_t> sum{0}; // keeps the reading from being left out
    ggml_context *        ctx;
    ggml_backend_buffer_t buffer;
    ggml_cgraph *         graph;
};

} // namespace bench
