#include "cpu.h"

#include <chrono>
#include <cstring>
#include <stdexcept>
#include <string>

namespace bench {

namespace {

constexpr const char * OURS = "CPU_SRHPM";

// Whether products with such weights run in this buffer type: llama.cpp's own test.
bool takes(ggml_backend_dev_t device, ggml_backend_buffer_type_t buft, ggml_type type, int64_t cols, int64_t rows) {
    ggml_context * ctx    = ggml_init({8 * ggml_tensor_overhead(), nullptr, true});
    ggml_tensor *  w      = ggml_new_tensor_2d(ctx, type, cols, rows);
    ggml_tensor *  x      = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, cols, 512);
    ggml_tensor *  op     = ggml_mul_mat(ctx, w, x);
    w->buffer             = ggml_backend_buft_alloc_buffer(buft, 0);
    const bool supported  = ggml_backend_dev_supports_op(device, op);
    ggml_backend_buffer_free(w->buffer);
    ggml_free(ctx);
    return supported;
}

} // namespace

template <class F> F Cpu::function(const char * name) const {
    return (F) ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(device), name);
}

Cpu::Cpu(int n_threads) {
    ggml_backend_load_all();
    device  = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    backend = device ? ggml_backend_dev_init(device, nullptr) : nullptr;
    if (!backend) {
        throw std::runtime_error("there is no CPU backend beside this program");
    }
    if (auto get = function<ggml_backend_dev_get_extra_bufts_t>("ggml_backend_dev_get_extra_bufts")) {
        extra = get(device);
    }
    function<ggml_backend_set_n_threads_t>("ggml_backend_set_n_threads")(backend, n_threads);
    // Without a pool, threads would be made for every graph where OpenMP keeps none.
    ggml_threadpool_params params = ggml_threadpool_params_default(n_threads);
    threads = function<decltype(&ggml_threadpool_new)>("ggml_threadpool_new")(&params);
    function<decltype(&ggml_backend_cpu_set_threadpool)>("ggml_backend_cpu_set_threadpool")(backend, threads);
}

Cpu::~Cpu() {
    ggml_backend_free(backend);
    function<decltype(&ggml_threadpool_free)>("ggml_threadpool_free")(threads);
}

ggml_backend_buffer_type_t Cpu::ours() const {
    for (auto * buft = extra; buft && *buft; ++buft) {
        if (!std::strcmp(ggml_backend_buft_name(*buft), OURS)) {
            return *buft;
        }
    }
    return nullptr;
}

ggml_backend_buffer_type_t Cpu::stock(ggml_type type, int64_t cols, int64_t rows) const {
    for (auto * buft = extra; buft && *buft; ++buft) {
        if (std::strcmp(ggml_backend_buft_name(*buft), OURS) != 0 && takes(device, *buft, type, cols, rows)) {
            return *buft;
        }
    }
    return plain();
}

ggml_backend_buffer_type_t Cpu::plain() const {
    return ggml_backend_dev_buffer_type(device);
}

double Cpu::compute(ggml_cgraph * graph) const {
    const auto begin = std::chrono::steady_clock::now();
    if (ggml_backend_graph_compute(backend, graph) != GGML_STATUS_SUCCESS) {
        throw std::runtime_error("a product failed");
    }
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

} // namespace bench
