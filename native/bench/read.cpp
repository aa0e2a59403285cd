#include "read.h"

#include "ggml-alloc.h"

#include <algorithm>
#include <cstring>

namespace bench {

namespace {

constexpr size_t PIECE = 256u << 10; // of one copy, taken by one thread at a time
constexpr size_t LINE  = 64;

#if defined(__GNUC__)
typedef uint64_t Words __attribute__((vector_size(16))); // every processor has these
#else
typedef uint64_t Words;
#endif

template <int AHEAD> uint64_t read(const uint8_t * from, size_t n) {
    constexpr size_t N = LINE / sizeof(Words);
    Words sums[2 * N] = {}; // of their own, so that no load waits for a sum
    for (size_t i = 0; i + 2 * LINE <= n; i += 2 * LINE) {
#if defined(__GNUC__)
        if (AHEAD > 0) {
            __builtin_prefetch(from + i + AHEAD, 0, 2); // may point behind the end
            __builtin_prefetch(from + i + AHEAD + LINE, 0, 2);
        }
#endif
        for (size_t k = 0; k < 2 * N; ++k) {
            Words words;
            std::memcpy(&words, from + i + k * sizeof(Words), sizeof(Words));
            sums[k] += words;
        }
    }
    for (size_t k = 1; k < 2 * N; ++k) {
        sums[0] += sums[k];
    }
    uint64_t sum;
    std::memcpy(&sum, sums, sizeof(sum));
    return sum;
}

void task(ggml_tensor *, const ggml_tensor *, int, int, void * self) {
    ((Read *) self)->work();
}

} // namespace

#if defined(__GNUC__)
const int Read::AHEAD[] = {0, 1024, 4096, -1};
#else
const int Read::AHEAD[] = {0, -1};
#endif

uint64_t read_bytes(const uint8_t * from, size_t n) {
    return read<1024>(from, n);
}

// A custom operation, so that the backend's own threads do it, awake as they are for a product.
Read::Read(const Cpu & cpu, const Weights & weights, size_t bytes, int ahead) :
    cpu(cpu),
    weights(weights),
    bytes(bytes),
    ahead(ahead),
    ctx(ggml_init({4 * ggml_tensor_overhead() + ggml_graph_overhead_custom(4, false), nullptr, true})) {
    ggml_tensor * none = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 1);
    graph              = ggml_new_graph_custom(ctx, 4, false);
    ggml_build_forward_expand(graph, ggml_map_custom1(ctx, none, task, GGML_N_TASKS_MAX, this));
    buffer = ggml_backend_alloc_ctx_tensors_from_buft(ctx, cpu.plain());
}

Read::~Read() {
    ggml_backend_buffer_free(buffer);
    ggml_free(ctx);
}

double Read::run() {
    next = 0;
    return cpu.compute(graph);
}

void Read::work() {
    const auto   how    = ahead == 0 ? read<0> : ahead == 1024 ? read<1024> : read<4096>;
    const size_t pieces = (bytes + PIECE - 1) / PIECE;
    uint64_t     own    = 0;
    for (size_t i = next++; i < pieces * weights.tensors.size(); i = next++) {
        const size_t begin = i % pieces * PIECE;
        own += how((const uint8_t *) weights.tensors[i / pieces]->data + begin, std::min(PIECE, bytes - begin));
    }
    sum += own;
}

} // namespace bench
