// Prints the devices that are found, multiplies two matrices on the last of them with a GPU's memory
// (else on the CPU), and prints the sum of the product: the same on each, as the stand-in computes on
// the CPU.
#include "ggml-backend.h"
#include "ggml.h"

#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr int K = 64, M = 48, N = 40;

std::vector<float> numbers(size_t n, unsigned seed) {
    std::vector<float> values(n);
    for (float & v : values) {
        seed = seed * 1664525u + 1013904223u;
        v    = (float) (seed >> 8) / (1u << 24) - 0.5f;
    }
    return values;
}

} // namespace

int main() {
    ggml_backend_load_all();
    for (size_t i = 0; i < ggml_backend_dev_count(); ++i) {
        std::printf("device %s\n", ggml_backend_dev_name(ggml_backend_dev_get(i)));
    }
    ggml_backend_dev_t device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_GPU);
    if (!device) {
        device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    }
    if (!device) {
        std::puts("no device");
        return 1;
    }
    ggml_backend_t backend = ggml_backend_dev_init(device, nullptr);
    ggml_context * ctx     = ggml_init({ggml_tensor_overhead() * 8 + ggml_graph_overhead(), nullptr, true});
    ggml_tensor *  a       = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, K, M);
    ggml_tensor *  b       = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, K, N);
    ggml_tensor *  product = ggml_mul_mat(ctx, a, b);
    ggml_cgraph *  graph   = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, product);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(ctx, backend);
    ggml_backend_tensor_set(a, numbers(K * M, 1).data(), 0, ggml_nbytes(a));
    ggml_backend_tensor_set(b, numbers(K * N, 2).data(), 0, ggml_nbytes(b));
    if (ggml_backend_graph_compute(backend, graph) != GGML_STATUS_SUCCESS) {
        std::puts("not computed");
        return 1;
    }
    std::vector<float> out(M * N);
    ggml_backend_tensor_get(product, out.data(), 0, ggml_nbytes(product));
    double sum = 0;
    for (float v : out) {
        sum += v;
    }
    std::printf("computed on %s: %.17g\n", ggml_backend_dev_name(device), sum);
    ggml_backend_buffer_free(buffer);
    ggml_backend_free(backend);
    ggml_free(ctx);
    return 0;
}
