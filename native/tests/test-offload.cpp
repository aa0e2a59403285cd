// Weights in the buffer type CPU_SRHPM that others than our kernels read:
//   * any range of bytes, of a tensor or of a view of it, is what was set, for every format;
//   * a scheduler with a GPU (stand-in-gpu.h) lends them to it for long batches, dense and of experts,
//     and the result is that of weights in plain RAM, bit for bit; short batches and all without
//     op offload stay with our kernels;
//   * a norm per head stays with them, however many heads make how many rows (SRHPM_EXACT is set).
// test-offload --speed: how fast a large matrix is packed and unpacked, instead.
// Exit code 77: this processor has no kernels, or SRHPM_ISA names none.

#include "format.h"
#include "stand-in-gpu.h"

#include "ggml-alloc.h"
#include "ggml-backend-impl.h"
#include "ggml-cpu.h"
#include "ggml.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace {

using bytes = std::vector<uint8_t>;

constexpr int64_t EXPERTS = 7;
constexpr int64_t USED    = 2;
constexpr int64_t SHORT   = 4;
constexpr int64_t LONG    = 40;

int failures = 0;
int checks   = 0;

void expect(bool good, const std::string & what) {
    checks++;
    if (!good && failures++ < 20) {
        std::printf("FAILED %s\n", what.c_str());
    }
}

std::vector<float> random_floats(int64_t n, uint32_t seed) {
    std::mt19937                    rng(seed);
    std::normal_distribution<float> normal(0, 1);
    std::vector<float>              out(n);
    std::generate(out.begin(), out.end(), [&] { return normal(rng); });
    return out;
}

// Any bytes are codes of most formats; the scales of some would be no numbers.
bytes random_weights(ggml_type type, int64_t k, int64_t rows) {
    bytes        data(ggml_row_size(type, k) * rows);
    const auto   from = random_floats(k * rows, 11);
    std::mt19937 rng(11);
    if (ggml_quantize_requires_imatrix(type) || type == GGML_TYPE_IQ3_S || type == GGML_TYPE_IQ3_XXS || type == GGML_TYPE_IQ2_S) {
        std::generate(data.begin(), data.end(), [&] { return (uint8_t) rng(); });
        for (size_t b = 0; b < data.size(); b += ggml_type_size(type)) {
            const ggml_fp16_t scale = ggml_fp32_to_fp16(0.01f * from[b / ggml_type_size(type)]);
            std::memcpy(&data[b], &scale, sizeof(scale));
        }
    } else {
        ggml_quantize_chunk(type, from.data(), data.data(), 0, rows, k, nullptr);
    }
    return data;
}

ggml_backend_buffer_type_t packed_type() {
    const auto device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    const auto extra  = (ggml_backend_dev_get_extra_bufts_t) ggml_backend_reg_get_proc_address(
        ggml_backend_dev_backend_reg(device), "ggml_backend_dev_get_extra_bufts");
    for (auto * type = extra(device); type && *type; ++type) {
        if (!std::strcmp(ggml_backend_buft_name(*type), "CPU_SRHPM")) {
            return *type;
        }
    }
    return nullptr;
}

struct Weights {
    ggml_context *        ctx = ggml_init({4 * ggml_tensor_overhead(), nullptr, true});
    ggml_tensor *         tensor;
    ggml_backend_buffer_t buffer;
    bytes                 data;

    Weights(ggml_backend_buffer_type_t where, ggml_type type, int64_t k, int64_t rows, int64_t experts) :
        data(random_weights(type, k, rows * experts)) {
        tensor = ggml_new_tensor_3d(ctx, type, k, rows, experts);
        buffer = ggml_backend_alloc_ctx_tensors_from_buft(ctx, where);
        ggml_backend_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
        ggml_backend_tensor_set(tensor, data.data(), 0, data.size());
    }
    ~Weights() {
        ggml_backend_buffer_free(buffer);
        ggml_free(ctx);
    }
    Weights(const Weights &) = delete;
    Weights & operator=(const Weights &) = delete;
};

// ---- ranges ---------------------------------------------------------------------------------------

void check_range(const Weights & w, const ggml_tensor * t, size_t first, size_t offset, size_t size, const std::string & name) {
    bytes got(size + 16, 0xa5);
    ggml_backend_tensor_get(t, got.data() + 8, offset, size);
    const bool edges = std::all_of(got.begin(), got.begin() + 8, [](uint8_t b) { return b == 0xa5; }) &&
                       std::all_of(got.end() - 8, got.end(), [](uint8_t b) { return b == 0xa5; });
    expect(edges && !std::memcmp(got.data() + 8, &w.data[first + offset], size),
           name + " bytes " + std::to_string(offset) + " + " + std::to_string(size));
}

void check_ranges(ggml_backend_buffer_type_t packed, ggml_type type) {
    const int64_t     unit = std::max<int64_t>(ggml_blck_size(type), 64);
    const Weights     w(packed, type, 2 * unit, 37, EXPERTS);
    const std::string name = ggml_type_name(type);
    const size_t      all  = ggml_nbytes(w.tensor), expert = w.tensor->nb[2];
    check_range(w, w.tensor, 0, 0, all, name);
    for (int64_t e = 0; e < EXPERTS; ++e) { // as a scheduler copies experts: with some bytes of the next
        check_range(w, w.tensor, 0, e * expert, expert + (e + 1 < EXPERTS ? std::min<size_t>(expert, 512) : 0), name);
    }
    std::mt19937 rng(5);
    for (int i = 0; i < 100; ++i) {
        const size_t offset = rng() % all;
        check_range(w, w.tensor, 0, offset, 1 + rng() % std::min<size_t>(all - offset, i % 2 ? 50 : all), name);
    }
    ggml_context * ctx  = ggml_init({4 * ggml_tensor_overhead(), nullptr, true});
    ggml_tensor *  view = ggml_view_2d(ctx, w.tensor, 2 * unit, 9, w.tensor->nb[1], 2 * expert + 20 * w.tensor->nb[1]);
    ggml_backend_view_init(view);
    check_range(w, view, view->view_offs, 0, ggml_nbytes(view), name + " view");
    check_range(w, view, view->view_offs, 11, ggml_nbytes(view) - 11, name + " view");
    ggml_free(ctx);
}

// Larger than what one thread takes.
void check_large(ggml_backend_buffer_type_t packed) {
    const Weights w(packed, GGML_TYPE_Q4_K, 4096, 4000, 1);
    check_range(w, w.tensor, 0, 0, ggml_nbytes(w.tensor), "large");
    check_range(w, w.tensor, 0, 1000003, 5000001, "large");
}

// ---- lending --------------------------------------------------------------------------------------

struct Scheduler {
    ggml_backend_t       backends[2];
    ggml_backend_sched_t sched;

    Scheduler(ggml_backend_dev_t gpu, bool offload) :
        backends{ggml_backend_dev_init(gpu, nullptr), ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, nullptr)},
        sched(ggml_backend_sched_new(backends, nullptr, 2, 64, false, offload)) {}
    ~Scheduler() {
        ggml_backend_sched_free(sched);
        ggml_backend_free(backends[0]);
        ggml_backend_free(backends[1]);
    }
    Scheduler(const Scheduler &) = delete;
    Scheduler & operator=(const Scheduler &) = delete;

    // The product with n columns, or of n tokens with `USED` experts each.
    std::vector<float> multiply(const Weights & w, int64_t n) {
        ggml_context *       ctx     = ggml_init({1 << 20, nullptr, true});
        const bool           experts = w.tensor->ne[2] > 1;
        ggml_tensor *        x       = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, w.tensor->ne[0], experts ? 1 : n, experts ? n : 1);
        ggml_tensor *        ids     = experts ? ggml_new_tensor_2d(ctx, GGML_TYPE_I32, USED, n) : nullptr;
        ggml_tensor *        out     = experts ? ggml_mul_mat_id(ctx, w.tensor, x, ids) : ggml_mul_mat(ctx, w.tensor, x);
        const auto           values  = random_floats(ggml_nelements(x), 12);
        std::vector<int32_t> which(USED * n);
        for (int64_t i = 0; i < USED * n; ++i) {
            which[i] = (int32_t) (i % USED ? 5 : i / USED % 4); // 4 and 6 are not used
        }
        ggml_set_input(x);
        ggml_set_output(out);
        if (experts) {
            ggml_set_input(ids);
        }
        std::vector<Input> inputs = {{x, values.data()}};
        if (experts) {
            inputs.push_back({ids, which.data()});
        }
        return compute(ctx, out, inputs);
    }

    // The product with n tokens of `heads` heads, each normed and multiplied by `factors` before.
    std::vector<float> normed(const Weights & w, const Weights & factors, int64_t heads, int64_t n) {
        ggml_context * ctx    = ggml_init({1 << 20, nullptr, true});
        ggml_tensor *  x      = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, w.tensor->ne[0] / heads, heads, n);
        ggml_tensor *  norm   = ggml_mul(ctx, ggml_rms_norm(ctx, x, 1e-6f), factors.tensor);
        ggml_tensor *  out    = ggml_mul_mat(ctx, w.tensor, ggml_reshape_2d(ctx, norm, w.tensor->ne[0], n));
        const auto     values = random_floats(ggml_nelements(x), 12);
        ggml_set_input(x);
        ggml_set_output(out);
        return compute(ctx, out, {{x, values.data()}});
    }

  private:
    struct Input {
        ggml_tensor * tensor;
        const void *  data;
    };

    std::vector<float> compute(ggml_context * ctx, ggml_tensor * out, const std::vector<Input> & inputs) {
        ggml_cgraph * graph = ggml_new_graph(ctx);
        ggml_build_forward_expand(graph, out);
        ggml_backend_sched_reset(sched);
        ggml_backend_sched_alloc_graph(sched, graph);
        for (const Input & input : inputs) {
            ggml_backend_tensor_set(input.tensor, input.data, 0, ggml_nbytes(input.tensor));
        }
        ggml_backend_sched_graph_compute(sched, graph);
        std::vector<float> result(ggml_nelements(out));
        ggml_backend_tensor_get(out, result.data(), 0, ggml_nbytes(out));
        ggml_free(ctx);
        return result;
    }
};

void check_lending(ggml_backend_dev_t gpu, ggml_backend_buffer_type_t packed, ggml_type type, int64_t k, int64_t rows, int64_t experts) {
    const Weights     ours(packed, type, k, rows, experts), plain(ggml_backend_cpu_buffer_type(), type, k, rows, experts);
    const std::string name = std::string(ggml_type_name(type)) + (experts > 1 ? " experts" : "");
    Scheduler         lends(gpu, true), keeps(gpu, false);

    const auto on_gpu = [&](Scheduler & s, const Weights & w, int64_t n, std::vector<float> & out) {
        const int before = stand_in_counts().long_products + stand_in_counts().short_products;
        out              = s.multiply(w, n);
        return stand_in_counts().long_products + stand_in_counts().short_products - before == 1;
    };
    std::vector<float> a, b, c, d;
    expect(on_gpu(lends, ours, LONG, a), name + ": a long batch is not offloaded");
    expect(on_gpu(lends, plain, LONG, b), name + ": a long batch is not offloaded from plain RAM");
    expect(a == b, name + ": offloaded from ours and from plain RAM differ");
    expect(!on_gpu(lends, ours, SHORT, c), name + ": a short batch is offloaded");
    expect(!on_gpu(keeps, ours, LONG, d), name + ": offloaded without op offload");
    // the first tokens are the same in all; our kernels say so to the last bit
    expect(std::equal(c.begin(), c.end(), d.begin()), name + ": a column depends on its batch");
    double error = 0, size = 0;
    for (size_t i = 0; i < a.size(); ++i) {
        error += (double) (a[i] - d[i]) * (a[i] - d[i]);
        size += (double) a[i] * a[i];
    }
    expect(error <= 1e-3 * size && size > 0, name + ": far from the GPU's, NMSE " + std::to_string(error / size));
}

void check_norms(ggml_backend_dev_t gpu, ggml_backend_buffer_type_t packed) {
    constexpr int64_t HEADS = 16, HEAD = 64;
    const Weights     w(packed, GGML_TYPE_Q8_0, HEADS * HEAD, 45, 1);
    const Weights     factors(ggml_backend_cpu_buffer_type(), GGML_TYPE_F32, HEAD, 1, 1);
    Scheduler         s(gpu, true);
    const auto        on_gpu = [&](int64_t n) {
        const int before = stand_in_counts().nodes;
        s.normed(w, factors, HEADS, n);
        return stand_in_counts().nodes - before;
    };
    expect(on_gpu(SHORT) == 0, "a norm of few tokens is offloaded");
    expect(on_gpu(LONG) > 1, "a norm of many tokens does not follow the product");
}

// ---- speed ------------------------------------------------------------------------------------------

// GB of ggml's layout per second, the best of some, on all processors.
void print_speed(ggml_backend_buffer_type_t packed, ggml_type type) {
    const Weights w(packed, type, 4096, 4096, 1);
    bytes         to(w.data.size());
    double        best[2] = {0, 0};
    for (int i = 0; i < 20; ++i) {
        const bool get   = i % 2;
        const auto start = std::chrono::steady_clock::now();
        if (get) {
            ggml_backend_tensor_get(w.tensor, to.data(), 0, to.size());
        } else {
            ggml_backend_tensor_set(w.tensor, w.data.data(), 0, w.data.size());
        }
        const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
        best[get] = std::max(best[get], to.size() / seconds.count() * 1e-9);
    }
    std::printf("%-8s packed at %5.2f, unpacked at %5.2f GB/s\n", ggml_type_name(type), best[0], best[1]);
}

} // namespace

int main(int argc, char ** argv) {
    ggml_backend_load_all();
    const auto packed = packed_type();
    if (!packed) {
        std::printf("no kernels on this processor, or none that SRHPM_ISA names\n");
        return 77;
    }
    if (argc > 1 && !std::strcmp(argv[1], "--speed")) {
        for (const srhpm::Format & f : srhpm::formats) {
            print_speed(packed, f.type);
        }
        return 0;
    }
    const auto gpu = stand_in_gpu(256u << 20);
    for (const srhpm::Format & f : srhpm::formats) {
        check_ranges(packed, f.type);
        const int64_t k = 2 * std::max<int64_t>(ggml_blck_size(f.type), 64);
        check_lending(gpu, packed, f.type, k, 45, 1);
        check_lending(gpu, packed, f.type, k, 45, EXPERTS);
    }
    check_norms(gpu, packed);
    // in several pieces
    check_lending(gpu, packed, GGML_TYPE_Q8_0, 4096, 10000, 1);
    check_lending(gpu, packed, GGML_TYPE_Q4_0, 4096, 3000, EXPERTS);
    check_large(packed);
    std::printf("%d formats, %d checks: %s\n", srhpm::N_FORMATS, checks, failures ? "FAILED" : "all right");
    return failures ? 1 : 0;
}
