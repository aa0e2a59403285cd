// bench-rpc HOST:PORT...
//
// What llama.cpp's RPC workers offer and what it takes to reach them, as a JSON array: the devices that
// llama-server --rpc would list, in that order and under those names, with memory (bytes), the time of a
// round trip (ms), bytes per second each way, and how fast a worker reads quantized weights in products
// with one token. Weights are zeros that the worker writes itself, so only the two transfers cross the
// network: 4 MB there and 4 MB back.
// What cannot be reached ends the program with a line on stderr and code 1, or, inside upstream's client, by
// an abort.

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-rpc.h"
#include "ggml.h"
#include "timing.h"

#include <algorithm>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

using bench::median_ms;

namespace {

constexpr size_t  SENT     = 4 << 20; // bytes of a transfer
constexpr int64_t COLUMNS  = 8192, ROWS = 7168; // of a weight matrix: 33 MB
constexpr int     MATRICES = 8;
constexpr int     RUNS     = 5;

// Tensors of a device, and a graph of products with them.
class Products {
    ggml_backend_t        backend;
    ggml_context *        ctx;
    ggml_backend_buffer_t buffer = nullptr;
    ggml_cgraph *         graph;

  public:
    Products(ggml_backend_t backend, int matrices, int64_t columns, int64_t rows) : backend(backend) {
        ctx = ggml_init({ggml_tensor_overhead() * 64 + ggml_graph_overhead(), nullptr, true});
        graph = ggml_new_graph(ctx);
        ggml_tensor * x = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, columns, 1);
        for (int i = 0; i < matrices; ++i) {
            ggml_build_forward_expand(graph, ggml_mul_mat(ctx, ggml_new_tensor_2d(ctx, GGML_TYPE_Q4_0, columns, rows), x));
        }
        buffer = ggml_backend_alloc_ctx_tensors(ctx, backend);
        if (!buffer) {
            throw std::runtime_error("the worker has no room for " + std::to_string(matrices) + " matrices");
        }
        ggml_backend_buffer_clear(buffer, 0);
    }
    ~Products() {
        ggml_backend_buffer_free(buffer);
        ggml_free(ctx);
    }

    // Until the results are there.
    void compute() {
        if (ggml_backend_graph_compute(backend, graph) != GGML_STATUS_SUCCESS) {
            throw std::runtime_error("the worker cannot compute a product");
        }
        float first;
        ggml_backend_tensor_get(ggml_graph_node(graph, -1), &first, 0, sizeof(first));
    }

    ggml_tensor * weights() {
        return ggml_graph_node(graph, 0)->src[0];
    }
};

void measure(ggml_backend_dev_t device, const char * endpoint, bool first) {
    size_t free = 0, total = 0;
    ggml_backend_dev_memory(device, &free, &total);
    ggml_backend_t backend = ggml_backend_dev_init(device, nullptr);
    if (!backend) {
        throw std::runtime_error(std::string("the worker at ") + endpoint + " does not answer");
    }
    const int matrices = (int) std::min<size_t>(MATRICES, free / (4 * ggml_row_size(GGML_TYPE_Q4_0, COLUMNS) * ROWS));
    if (matrices == 0) {
        throw std::runtime_error(std::string("the worker at ") + endpoint + " has too little memory to be measured");
    }
    double trip, up, down, read;
    {
        Products             tiny(backend, 1, 256, 32);
        Products             large(backend, matrices, COLUMNS, ROWS);
        std::vector<uint8_t> data(SENT, 0);
        const auto           get = [&](size_t n) { ggml_backend_tensor_get(large.weights(), data.data(), 0, n); };
        trip = median_ms(20, [&] { get(1); });
        down = median_ms(RUNS, [&] { get(SENT); }) - trip;
        up   = median_ms(RUNS, [&] { ggml_backend_tensor_set(large.weights(), data.data(), 0, SENT); get(1); }) - trip;
        const double nothing = median_ms(RUNS, [&] { tiny.compute(); });
        read = median_ms(RUNS, [&] { large.compute(); }) - nothing;
    }
    ggml_backend_free(backend);
    const auto rate = [](double bytes, double ms) { return bytes / (std::max(ms, 1e-3) / 1e3); };
    const double weights = (double) matrices * ggml_row_size(GGML_TYPE_Q4_0, COLUMNS) * ROWS;
    std::printf("%s{\"name\": \"%s\", \"endpoint\": \"%s\", \"total\": %zu, \"free\": %zu, \"round_trip_ms\": %.4f, "
                "\"up_bytes_s\": %.0f, \"down_bytes_s\": %.0f, \"read_bytes_s\": %.0f}",
                first ? "" : ", ", ggml_backend_dev_name(device), endpoint, total, free, trip, rate(SENT, up), rate(SENT, down),
                rate(weights, read));
}

} // namespace

int main(int argc, char ** argv) try {
    ggml_backend_load_all();
    ggml_backend_reg_t rpc = ggml_backend_reg_by_name("RPC");
    const auto add = rpc ? (decltype(ggml_backend_rpc_add_server) *) ggml_backend_reg_get_proc_address(rpc, "ggml_backend_rpc_add_server") : nullptr;
    if (!add) {
        throw std::runtime_error("built without RPC");
    }
    bool first = true;
    std::printf("[");
    for (int i = 1; i < argc; ++i) {
        ggml_backend_reg_t worker = add(argv[i]);
        if (!worker) {
            throw std::runtime_error(std::string("the worker at ") + argv[i] + " does not answer");
        }
        for (size_t j = 0; j < ggml_backend_reg_dev_count(worker); ++j) {
            measure(ggml_backend_reg_dev_get(worker, j), argv[i], first);
            first = false;
        }
    }
    std::printf("]\n");
    return 0;
} catch (const std::exception & error) {
    std::fprintf(stderr, "bench-rpc: %s\n", error.what());
    return 1;
}
