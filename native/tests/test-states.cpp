// Gated delta nets write their states straight to the cache (overlay/ggml-cpu/srhpm-states.h): the same
// bits as when they are copied, for all that a pass may hold, and the copy is really left out.
// With SRHPM_ROLLBACK=off it must not be (argument "off").

#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml.h"

#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

namespace {

constexpr int64_t S = 32, HEADS = 6, KEYS = 3, CELLS = 3; // state width, heads, those of keys, cache cells
constexpr float   UNTOUCHED = 12345.0f;

struct Case {
    int64_t tokens, sequences, slots;
    bool    per_channel; // decay by channel instead of by head
};

struct Result {
    std::vector<float> output, cache;
    bool               copied; // the states are behind the output
};

ggml_tensor * random_tensor(ggml_context * ctx, std::mt19937 & rng, float low, float high, int64_t a, int64_t b, int64_t c, int64_t d) {
    ggml_tensor * t = ggml_new_tensor_4d(ctx, GGML_TYPE_F32, a, b, c, d);
    std::uniform_real_distribution<float> some(low, high);
    for (int64_t i = 0; i < ggml_nelements(t); ++i) {
        ((float *) t->data)[i] = some(rng);
    }
    return t;
}

// As delta-net-base.cpp lays it out. `seen`: the states behind the output are an output of the graph,
// so they must be there.
Result run(const Case & c, int threads, bool seen) {
    ggml_context * ctx = ggml_init({(size_t) 64 << 20, nullptr, false});
    std::mt19937   rng(7);
    const int64_t  d = S * S * HEADS, kept = std::min(c.tokens, c.slots);
    ggml_tensor *  q = random_tensor(ctx, rng, -1, 1, S, KEYS, c.tokens, c.sequences);
    ggml_tensor *  k = random_tensor(ctx, rng, -0.2f, 0.2f, S, KEYS, c.tokens, c.sequences);
    ggml_tensor *  v = random_tensor(ctx, rng, -1, 1, S, HEADS, c.tokens, c.sequences);
    ggml_tensor *  g = random_tensor(ctx, rng, -0.5f, 0, c.per_channel ? S : 1, HEADS, c.tokens, c.sequences);
    ggml_tensor *  b = random_tensor(ctx, rng, 0, 1, 1, HEADS, c.tokens, c.sequences);
    ggml_tensor *  s = random_tensor(ctx, rng, -1, 1, S, S, HEADS, c.sequences);
    ggml_tensor *  cache = random_tensor(ctx, rng, -1, 1, d, CELLS * c.slots, 1, 1);

    ggml_tensor * op     = ggml_gated_delta_net(ctx, q, k, v, g, b, s, c.slots);
    const size_t  scores = (size_t) (S * HEADS * c.tokens * c.sequences), row = (size_t) d * sizeof(float);
    ggml_tensor * output = ggml_view_4d(ctx, op, S, HEADS, c.tokens, c.sequences, S * 4, S * HEADS * 4, S * HEADS * c.tokens * 4, 0);
    ggml_tensor * states = ggml_view_3d(ctx, op, d, c.sequences, kept, row, row * c.sequences, scores * sizeof(float));
    // from the second cell on
    ggml_tensor * place = ggml_view_3d(ctx, cache, d, c.sequences, kept, row, row * CELLS, row);
    ggml_tensor * after = ggml_scale(ctx, ggml_cont(ctx, output), 1.0f);
    if (seen) {
        ggml_set_output(op);
    }

    ggml_cgraph * graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, ggml_cpy(ctx, states, place));
    ggml_build_forward_expand(graph, after);
    for (int64_t i = 0; i < ggml_nelements(op); ++i) {
        ((float *) op->data)[i] = UNTOUCHED;
    }
    ggml_backend_t cpu = ggml_backend_cpu_init();
    ggml_backend_cpu_set_n_threads(cpu, threads);
    ggml_backend_graph_compute(cpu, graph);
    ggml_backend_free(cpu);

    Result r;
    r.output.assign((float *) after->data, (float *) after->data + ggml_nelements(after));
    r.cache.assign((float *) cache->data, (float *) cache->data + ggml_nelements(cache));
    r.copied = ((float *) op->data)[scores] != UNTOUCHED;
    ggml_free(ctx);
    return r;
}

bool same(const std::vector<float> & a, const std::vector<float> & b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

} // namespace

int main(int argc, char ** argv) {
    const bool off = argc > 1 && !std::strcmp(argv[1], "off");
    int        cases = 0, failed = 0;
    for (int64_t tokens : {1, 2, 4, 8, 21}) {
        for (int64_t sequences : {1, 2}) {
            for (int64_t slots : {1, 4, 8}) {
                for (bool per_channel : {false, true}) {
                    const Case   c{tokens, sequences, slots, per_channel};
                    const Result want = run(c, 1, true);
                    for (int threads : {1, 2, 4}) {
                        const Result got  = run(c, threads, false);
                        const bool   good = want.copied && got.copied == off && same(got.output, want.output) && same(got.cache, want.cache);
                        if (!good) {
                            std::printf("%d tokens, %d sequences, %d slots, %d threads: output %s, cache %s, %s\n", (int) tokens,
                                        (int) sequences, (int) slots, threads, same(got.output, want.output) ? "equal" : "DIFFERS",
                                        same(got.cache, want.cache) ? "equal" : "DIFFERS", got.copied ? "copied" : "not copied");
                        }
                        failed += !good;
                        cases++;
                    }
                }
            }
        }
    }
    std::printf("%d cases, %d failed\n", cases, failed);
    return failed ? 1 : 0;
}
