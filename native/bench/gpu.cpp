#include "gpu.h"

#include "ggml-alloc.h"
#include "timing.h"

#include <memory>
#include <stdexcept>

namespace bench {

namespace {

constexpr int64_t TINY    = 32; // floats
constexpr int     CHANGES = 16; // of side and back
constexpr int     RUNS = 25, TRANSFERS = 5;
constexpr double  LIMIT_MS = 300; // for what is done several times

struct FreeContext {
    void operator()(ggml_context * p) const { ggml_free(p); }
};
struct FreeBuffer {
    void operator()(ggml_backend_buffer_t p) const { ggml_backend_buffer_free(p); }
};
struct FreeScheduler {
    void operator()(ggml_backend_sched_t p) const { ggml_backend_sched_free(p); }
};
using Context   = std::unique_ptr<ggml_context, FreeContext>;
using Buffer    = std::unique_ptr<ggml_backend_buffer, FreeBuffer>;
using Scheduler = std::unique_ptr<ggml_backend_sched, FreeScheduler>;

Context context(int tensors) {
    return Context(ggml_init({tensors * ggml_tensor_overhead() + ggml_graph_overhead(), nullptr, true}));
}

Buffer allocated(ggml_context * ctx, ggml_backend_t backend) {
    Buffer buffer(ggml_backend_alloc_ctx_tensors(ctx, backend));
    if (!buffer) {
        throw std::runtime_error("its memory does not suffice");
    }
    return buffer;
}

// A chain of tiny operations, each on the backend of its place.
struct Chain {
    double ms;
    int    splits;
};

Chain chain(const std::vector<ggml_backend_t> & at, ggml_backend_t gpu, ggml_backend_t cpu) {
    const Context  ctx   = context((int) at.size() + 2);
    ggml_cgraph *  graph = ggml_new_graph(ctx.get());
    ggml_backend_t both[] = {gpu, cpu};
    const Scheduler sched(ggml_backend_sched_new(both, nullptr, 2, GGML_DEFAULT_GRAPH_SIZE, false, false));
    ggml_tensor *  last = ggml_new_tensor_1d(ctx.get(), GGML_TYPE_F32, TINY);
    ggml_tensor *  in   = last;
    ggml_set_input(in);
    for (ggml_backend_t backend : at) {
        last = ggml_mul(ctx.get(), last, last); // all of the CPU's threads wait for it, as in a model's part
        ggml_backend_sched_set_tensor_backend(sched.get(), last, backend);
    }
    ggml_set_output(last);
    ggml_build_forward_expand(graph, last);
    if (!ggml_backend_sched_alloc_graph(sched.get(), graph)) {
        throw std::runtime_error("its memory does not suffice");
    }
    const std::vector<float> ones(TINY, 1.0f);
    ggml_backend_tensor_set(in, ones.data(), 0, ggml_nbytes(in));
    const double ms = median_ms(RUNS, [&] {
        if (ggml_backend_sched_graph_compute(sched.get(), graph) != GGML_STATUS_SUCCESS) {
            throw std::runtime_error("a graph over CPU and GPU failed");
        }
    }, LIMIT_MS);
    return {ms, ggml_backend_sched_get_n_splits(sched.get())};
}

} // namespace

Gpu::Gpu(const std::string & name) : device(ggml_backend_dev_by_name(name.c_str())) {
    if (!device || ggml_backend_dev_type(device) == GGML_BACKEND_DEVICE_TYPE_CPU) {
        throw std::runtime_error("there is no GPU " + name);
    }
    backend = ggml_backend_dev_init(device, nullptr);
    if (!backend) {
        throw std::runtime_error("it does not start");
    }
    size_t total = 0;
    ggml_backend_dev_memory(device, &free_bytes, &total);
}

Gpu::~Gpu() {
    ggml_backend_free(backend);
}

ggml_backend_buffer_type_t Gpu::plain() const {
    return ggml_backend_dev_buffer_type(device);
}

double Gpu::compute(ggml_cgraph * graph) const {
    return ms_of([&] {
        if (ggml_backend_graph_compute(backend, graph) != GGML_STATUS_SUCCESS) {
            throw std::runtime_error("a graph failed");
        }
    });
}

const char * Gpu::name() const {
    return ggml_backend_dev_name(device);
}

const char * Gpu::description() const {
    return ggml_backend_dev_description(device);
}

bool Gpu::multiplies(ggml_type type, int64_t cols, int64_t rows, int64_t m) const {
    const Context ctx = context(3);
    ggml_tensor * w   = ggml_new_tensor_2d(ctx.get(), type, cols, rows);
    return ggml_backend_dev_supports_op(device, ggml_mul_mat(ctx.get(), w, ggml_new_tensor_2d(ctx.get(), GGML_TYPE_F32, cols, m)));
}

double Gpu::launch() const {
    const Context ctx   = context(2);
    ggml_cgraph * graph = ggml_new_graph(ctx.get());
    ggml_build_forward_expand(graph, ggml_scale(ctx.get(), ggml_new_tensor_1d(ctx.get(), GGML_TYPE_F32, TINY), 0.5f));
    const Buffer buffer = allocated(ctx.get(), backend);
    ggml_backend_buffer_clear(buffer.get(), 0);
    return median_ms(RUNS, [&] { compute(graph); }, LIMIT_MS);
}

double Gpu::crossing(const Cpu & cpu) const {
    // The same operations in turn, and first all of one side's: what differs are the changes.
    std::vector<ggml_backend_t> in_turn, sorted;
    for (int i = 0; i < 2 * CHANGES; ++i) {
        in_turn.push_back(i % 2 ? backend : cpu.handle());
        sorted.push_back(i < CHANGES ? cpu.handle() : backend);
    }
    const Chain many = chain(in_turn, backend, cpu.handle()), few = chain(sorted, backend, cpu.handle());
    if (many.splits <= few.splits) {
        throw std::runtime_error("graphs over CPU and GPU are not split");
    }
    return std::max(0.0, many.ms - few.ms) / (many.splits - few.splits);
}

Gpu::Link Gpu::link(size_t bytes) const {
    const Context ctx = context(1);
    ggml_tensor * to  = ggml_new_tensor_1d(ctx.get(), GGML_TYPE_I8, (int64_t) bytes);
    const Buffer  buffer = allocated(ctx.get(), backend);
    std::vector<uint8_t> data(bytes, 1);
    const double up   = median_ms(TRANSFERS, [&] { ggml_backend_tensor_set(to, data.data(), 0, bytes); }, LIMIT_MS);
    const double down = median_ms(TRANSFERS, [&] { ggml_backend_tensor_get(to, data.data(), 0, bytes); }, LIMIT_MS);
    const auto   rate = [&](double ms) { return 1e3 * (double) bytes / std::max(ms, 1e-6); };
    return {rate(up), rate(down)};
}

} // namespace bench
