#include "weights.h"

#include "ggml-alloc.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <stdexcept>

namespace bench {

namespace {

constexpr size_t ALIGNMENT = 256; // as much as any device asks for
// Quantizing takes seconds for some types; how fast a product is does not depend on the weights.
constexpr int64_t OWN_ROWS = 64;

size_t align(size_t n) {
    return (n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

} // namespace

std::vector<float> random_floats(size_t n, uint32_t seed) {
    std::mt19937                    rng(seed);
    std::normal_distribution<float> dist(0.0f, 1.0f);
    std::vector<float>              out(n);
    for (auto & x : out) {
        x = dist(rng);
    }
    return out;
}

std::vector<uint8_t> random_weights(const Shape & shape, uint32_t seed) {
    const int64_t            own   = std::min(shape.rows, OWN_ROWS);
    const size_t             bytes = ggml_row_size(shape.type, shape.cols);
    const std::vector<float> from  = random_floats(own * shape.cols, seed);
    const std::vector<float> imatrix(shape.cols, 1.0f); // some types refuse to be quantized without one
    std::vector<uint8_t>     out(bytes * shape.rows);
    ggml_quantize_chunk(shape.type, from.data(), out.data(), 0, own, shape.cols, imatrix.data());
    for (int64_t r = own; r < shape.rows; ++r) {
        std::memcpy(&out[r * bytes], &out[r % own * bytes], bytes);
    }
    return out;
}

size_t copy_bytes(const Shape & shape, ggml_backend_buffer_type_t buft) {
    ggml_context * ctx   = ggml_init({2 * ggml_tensor_overhead(), nullptr, true});
    const size_t   bytes = ggml_backend_buft_get_alloc_size(buft, ggml_new_tensor_2d(ctx, shape.type, shape.cols, shape.rows));
    ggml_free(ctx);
    return bytes;
}

Weights::Weights(const Shape & shape, ggml_backend_buffer_type_t buft, int64_t copies, const std::vector<uint8_t> & data) :
    shape(shape),
    ctx(ggml_init({(copies + 1) * ggml_tensor_overhead(), nullptr, true})) {
    for (int64_t i = 0; i < copies; ++i) {
        tensors.push_back(ggml_new_tensor_2d(ctx, shape.type, shape.cols, shape.rows));
    }
    buffer = ggml_backend_alloc_ctx_tensors_from_buft(ctx, buft);
    if (!buffer) {
        ggml_free(ctx);
        throw std::runtime_error("memory does not suffice for the weights");
    }
    // with it, the CPU backend sees them as a model's
    ggml_backend_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    for (ggml_tensor * tensor : tensors) {
        ggml_backend_tensor_set(tensor, data.data(), 0, data.size());
    }
}

Weights::~Weights() {
    ggml_backend_buffer_free(buffer);
    ggml_free(ctx);
}

Product::Product(const Engine & engine, const Weights & weights, int64_t copies, int64_t m, const float * x) : engine(engine) {
    const size_t nodes   = copies + 1;
    const size_t x_bytes = align(weights.shape.cols * m * sizeof(float));
    ctx    = ggml_init({(nodes + 1) * ggml_tensor_overhead() + ggml_graph_overhead_custom(nodes, false), nullptr, true});
    graph  = ggml_new_graph_custom(ctx, nodes, false);
    buffer = ggml_backend_buft_alloc_buffer(engine.plain(), x_bytes + weights.shape.rows * m * sizeof(float) + ALIGNMENT);
    auto * base = (char *) align((size_t) ggml_backend_buffer_get_base(buffer));

    ggml_tensor * in = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, weights.shape.cols, m);
    ggml_backend_tensor_alloc(buffer, in, base);
    ggml_backend_tensor_set(in, x, 0, ggml_nbytes(in));
    for (int64_t i = 0; i < copies; ++i) {
        // Results take each other's place: a model's, too, stay in the cache.
        ggml_tensor * out = ggml_mul_mat(ctx, weights.tensors[i], in);
        ggml_backend_tensor_alloc(buffer, out, base + x_bytes);
        ggml_build_forward_expand(graph, out);
    }
}

Product::~Product() {
    ggml_backend_buffer_free(buffer);
    ggml_free(ctx);
}

std::vector<float> Product::result() const {
    const ggml_tensor * out = ggml_graph_node(graph, -1);
    std::vector<float>  floats(ggml_nelements(out));
    ggml_backend_tensor_get(out, floats.data(), 0, ggml_nbytes(out));
    return floats;
}

std::vector<bool> columns_equal(const Engine & engine, const Weights & weights, const std::vector<int> & ms, const float * x) {
    const auto columns = [&](int64_t m, const float * from) {
        const Product product(engine, weights, 1, m, from);
        product.run();
        return product.result();
    };
    std::vector<float> alone; // one column after the other
    for (int j = 0; j < *std::max_element(ms.begin(), ms.end()); ++j) {
        const auto column = columns(1, x + j * weights.shape.cols);
        alone.insert(alone.end(), column.begin(), column.end());
    }
    std::vector<bool> equal;
    for (int m : ms) {
        const auto together = columns(m, x);
        equal.push_back(!std::memcmp(together.data(), alone.data(), together.size() * sizeof(float)));
    }
    return equal;
}

} // namespace bench
