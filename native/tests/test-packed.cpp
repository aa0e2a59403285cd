// Products over weights in the buffer type CPU_SRHPM, and over floats in the plain one, through graphs on
// the CPU device as a model's run: MUL_MAT and MUL_MAT_ID, every format, whole and odd numbers of rows,
// activations that are not contiguous, several thread counts.
//   * a column (a token's column, for experts) equals the product over it alone, bit for bit; with dense
//     floats in passes of up to 8 tokens, or SRHPM_EXACT of them;
//   * it lies as near to a product in double precision as rounding activations to 8 bits allows, for
//     floats as near as float sums do (upstream rounds activations to 16 bits);
//   * it is about what the same weights give in the plain CPU buffer.
// Exit code 77: this processor has no kernels, or SRHPM_ISA names none.

#include "kernels.h"

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace {

using floats = std::vector<float>;

constexpr int     THREADS[] = {1, 2, 3, 8};
constexpr int     FEW       = 2; // threads, up to which every number of columns is tried
constexpr int64_t COLUMNS[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 33};
constexpr int64_t MOST      = 33;

int failures = 0;
int graphs   = 0;

void fail(const std::string & what) {
    if (failures++ < 20) {
        std::printf("FAILED %s\n", what.c_str());
    }
}

floats random_floats(size_t n, uint32_t seed) {
    std::mt19937                    rng(seed);
    std::normal_distribution<float> normal(0, 1);
    floats                          out(n);
    std::generate(out.begin(), out.end(), [&] { return normal(rng); });
    return out;
}

// ---- the device -----------------------------------------------------------------------------------

struct Cpu {
    ggml_backend_dev_t         device  = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    ggml_backend_t             backend = ggml_backend_dev_init(device, nullptr);
    ggml_backend_buffer_type_t plain   = ggml_backend_dev_buffer_type(device);
    ggml_backend_buffer_type_t packed  = nullptr;

    Cpu() {
        const auto extra = (ggml_backend_dev_get_extra_bufts_t) address("ggml_backend_dev_get_extra_bufts");
        for (auto * type = extra(device); type && *type; ++type) {
            if (!std::strcmp(ggml_backend_buft_name(*type), "CPU_SRHPM")) {
                packed = *type;
            }
        }
    }
    ~Cpu() { ggml_backend_free(backend); }
    Cpu(const Cpu &) = delete;
    Cpu & operator=(const Cpu &) = delete;

    void * address(const char * name) const {
        return ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(device), name);
    }

    void set_threads(int n) const { ((ggml_backend_set_n_threads_t) address("ggml_backend_set_n_threads"))(backend, n); }
};

bool is_float(ggml_type type) {
    return srhpm::float_index(type) >= 0;
}

// Tokens of the widest pass whose dense products are ours.
int64_t widest(ggml_type type) {
    const char * exact = std::getenv("SRHPM_EXACT");
    return is_float(type) ? std::max<int64_t>(8, exact ? std::atoi(exact) : 0) : MOST;
}

bool has_grid(ggml_type type) {
    return type == GGML_TYPE_IQ2_XXS || type == GGML_TYPE_IQ2_XS || type == GGML_TYPE_IQ2_S ||
           type == GGML_TYPE_IQ3_XXS || type == GGML_TYPE_IQ3_S;
}

std::vector<uint8_t> random_weights(ggml_type type, int64_t k, int64_t rows) {
    std::vector<uint8_t> data(ggml_row_size(type, k) * rows);
    const floats         from = random_floats(k * rows, 11);
    if (!has_grid(type)) {
        ggml_quantize_chunk(type, from.data(), data.data(), 0, rows, k, nullptr);
        return data;
    }
    // Quantizing these takes seconds. Any bytes are codes; the scale comes first.
    std::mt19937 rng(11);
    std::generate(data.begin(), data.end(), [&] { return (uint8_t) rng(); });
    for (size_t b = 0; b < data.size(); b += ggml_type_size(type)) {
        const ggml_fp16_t scale = ggml_fp32_to_fp16(0.01f * from[b / ggml_type_size(type)]);
        std::memcpy(&data[b], &scale, sizeof(scale));
    }
    return data;
}

// The same matrices (one, or one per expert) packed (if they are not floats), plain, and dequantized. Rows
// of floats may be parts of rows that are longer by `apart`.
struct Weights {
    ggml_context *        ctx = ggml_init({8 * ggml_tensor_overhead(), nullptr, true});
    ggml_tensor *         packed;
    ggml_tensor *         plain;
    ggml_backend_buffer_t buffers[2];
    floats                values;

    Weights(const Cpu & cpu, ggml_type type, int64_t k, int64_t rows, int64_t experts, int64_t apart = 0) {
        const std::vector<uint8_t> data = random_weights(type, k + apart, rows * experts);
        floats                     all((k + apart) * rows * experts);
        if (type == GGML_TYPE_F32) {
            std::memcpy(all.data(), data.data(), data.size());
        } else {
            ggml_get_type_traits(type)->to_float(data.data(), all.data(), (int64_t) all.size());
        }
        for (int64_t r = 0; r < rows * experts; ++r) {
            values.insert(values.end(), &all[r * (k + apart)], &all[r * (k + apart)] + k);
        }

        ggml_tensor ** tensors[] = {&packed, &plain};
        for (int i = 0; i < 2; ++i) {
            *tensors[i] = ggml_new_tensor_3d(ctx, type, k + apart, rows, experts);
            // the one without memory
            buffers[i] = ggml_backend_alloc_ctx_tensors_from_buft(ctx, i || is_float(type) ? cpu.plain : cpu.packed);
            ggml_backend_buffer_set_usage(buffers[i], GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
            ggml_backend_tensor_set(*tensors[i], data.data(), 0, data.size());
        }
        if (apart) {
            packed = ggml_view_3d(ctx, packed, k, rows, experts, packed->nb[1], packed->nb[2], 0);
            ggml_backend_view_init(packed);
            plain = ggml_view_3d(ctx, plain, k, rows, experts, plain->nb[1], plain->nb[2], 0);
            ggml_backend_view_init(plain);
        }
    }
    ~Weights() {
        ggml_backend_buffer_free(buffers[0]);
        ggml_backend_buffer_free(buffers[1]);
        ggml_free(ctx);
    }
    Weights(const Weights &) = delete;
    Weights & operator=(const Weights &) = delete;
};

struct Graph {
    ggml_context *                                      ctx;
    std::vector<std::pair<ggml_tensor *, const void *>> inputs;
};

floats compute(const Cpu & cpu, int threads, const std::function<ggml_tensor *(Graph &)> & build) {
    Graph         g{ggml_init({1 << 20, nullptr, true}), {}};
    ggml_tensor * out   = build(g);
    ggml_cgraph * graph = ggml_new_graph(g.ctx);
    ggml_build_forward_expand(graph, out);
    if (!ggml_backend_dev_supports_op(cpu.device, out)) {
        fail("the device refuses " + std::string(ggml_op_name(out->op)) + " " + ggml_type_name(out->src[0]->type));
    }
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(g.ctx, cpu.backend);
    for (auto & [tensor, data] : g.inputs) {
        ggml_backend_tensor_set(tensor, data, 0, ggml_nbytes(tensor));
    }
    cpu.set_threads(threads);
    ggml_backend_graph_compute(cpu.backend, graph);
    floats result(ggml_nelements(out));
    ggml_backend_tensor_get(out, result.data(), 0, ggml_nbytes(out));
    ggml_backend_buffer_free(buffer);
    ggml_free(g.ctx);
    graphs++;
    return result;
}

// ---- what a product must be ------------------------------------------------------------------------

// Sums of squares, over all columns of a case.
struct Nearness {
    double error = 0, size = 0;

    void add(const floats & a, const floats & b) {
        for (size_t i = 0; i < a.size(); ++i) {
            error += (a[i] - b[i]) * (a[i] - b[i]);
            size += b[i] * b[i];
        }
    }
};

// `got` are the products of `rows` rows of k weights and one column, whose activations are rounded by
// up to half a step of 1/127 of their block's largest, unless `exact`.
void check_bound(const std::string & name, bool exact, const float * w, int64_t k, int64_t rows, const float * x, const float * got) {
    for (int64_t r = 0; r < rows; ++r, w += k) {
        double want = 0, most = 0;
        for (int64_t b = 0; b < k; b += srhpm::BLOCK) {
            double largest = 0, weights = 0, terms = 0;
            for (int64_t i = b; i < std::min(b + srhpm::BLOCK, k); ++i) {
                want += (double) w[i] * x[i];
                largest = std::max(largest, (double) std::fabs(x[i]));
                weights += std::fabs(w[i]);
                terms += std::fabs(w[i] * x[i]);
            }
            // the second term: sums of floats
            most += exact ? terms * 1e-6 : weights * largest * (0.5 / 127 + 1e-5);
        }
        if (!(std::fabs(got[r] - want) <= most)) {
            fail(name + ": row " + std::to_string(r) + " is " + std::to_string(got[r]) + ", should be " + std::to_string(want));
            return;
        }
    }
}

// Columns [first, first + n) with so many threads; `plain` from the plain buffer.
using Columns = std::function<floats(int threads, int64_t first, int64_t n, bool plain)>;

// Batches of columns against columns alone, which are returned.
std::vector<floats> check_columns(const std::string & name, int64_t most, const Columns & columns) {
    std::vector<floats> alone;
    Nearness            plain;
    for (int64_t j = 0; j < MOST; ++j) {
        alone.push_back(columns(1, j, 1, false));
        plain.add(alone[j], columns(1, j, 1, true));
    }
    if (!(plain.error <= 1e-3 * plain.size)) {
        fail(name + " is far from the plain buffer's: NMSE " + std::to_string(plain.error / plain.size));
    }
    for (int64_t m : COLUMNS) {
        const int64_t first = (MOST - m) / 2;
        for (int threads : THREADS) {
            if (m > most || (threads > FEW && m % 4 != 1)) {
                continue;
            }
            const floats all = columns(threads, first, m, false);
            for (int64_t j = 0; j < m; ++j) {
                const floats & one = alone[first + j];
                if (std::memcmp(&all[j * one.size()], one.data(), one.size() * sizeof(float)) != 0) {
                    fail(name + ": column " + std::to_string(j) + " of " + std::to_string(m) + " is not as alone, " +
                         std::to_string(threads) + " threads");
                    return alone;
                }
            }
        }
    }
    return alone;
}

// ---- cases -------------------------------------------------------------------------------------------

// How the activations lie: row after row, as a part of longer rows, or with two outer dimensions swapped.
enum Layout { CONTIGUOUS, STRIDED, PERMUTED };

constexpr int64_t PAD = 40; // floats that follow a row of STRIDED

// [k, n], or [k, 3, n / 3] where n allows it, of the rows `first` on of `x`; `kept` holds them meanwhile.
ggml_tensor * activations(Graph & g, const floats & x, int64_t k, int64_t first, int64_t n, Layout layout, floats & kept) {
    const int64_t parts  = layout == PERMUTED && n % 3 == 0 ? 3 : 1;
    const int64_t stride = layout == STRIDED ? k + PAD : k;
    kept.assign(stride * n, 1e9f); // what is read beside a row would show
    for (int64_t j = 0; j < n; ++j) {
        // column j is (j % parts, j / parts) of the result, and lies transposed
        const int64_t at = j % parts * (n / parts) + j / parts;
        std::copy_n(&x[(first + j) * k], k, &kept[at * stride]);
    }
    ggml_tensor * whole = ggml_new_tensor_3d(g.ctx, GGML_TYPE_F32, stride, n / parts, parts);
    g.inputs.push_back({whole, kept.data()});
    if (layout == STRIDED) {
        return ggml_view_2d(g.ctx, whole, k, n, whole->nb[1], 0);
    }
    return parts > 1 ? ggml_permute(g.ctx, whole, 0, 2, 1, 3) : whole;
}

void check_mul_mat(const Cpu & cpu, ggml_type type, int64_t k, int64_t rows, Layout layout, int64_t apart = 0) {
    const std::string name = "mul_mat " + std::string(ggml_type_name(type)) + " " + std::to_string(k) + "x" +
                             std::to_string(rows) + (layout == STRIDED ? " strided" : layout == PERMUTED ? " permuted" : "") +
                             (apart ? " of a view" : "");
    const Weights w(cpu, type, k, rows, 1, apart);
    const floats  x     = random_floats(k * MOST, 12);
    const auto    alone = check_columns(name, widest(type), [&](int threads, int64_t first, int64_t n, bool plain) {
        floats kept;
        return compute(cpu, threads, [&](Graph & g) {
            return ggml_mul_mat(g.ctx, plain ? w.plain : w.packed, activations(g, x, k, first, n, layout, kept));
        });
    });
    for (int64_t j = 0; j < MOST; ++j) {
        check_bound(name, is_float(type), w.values.data(), k, rows, &x[j * k], alone[j].data());
    }
}

constexpr int64_t EXPERTS = 5, USED = 3;

// Expert 0 gets every third token twice, experts 1 to 3 some, expert 4 none.
int32_t expert(int64_t token, int64_t slot) {
    return (int32_t) (slot == 0 ? 0 : token % 3 == 0 && slot == 1 ? 0 : 1 + (token * 7 + slot) % 3);
}

// `per_slot`: each of a token's experts gets activations of its own (as for the second matrix of a
// feed-forward net), else all the same.
void check_mul_mat_id(const Cpu & cpu, ggml_type type, int64_t k, int64_t rows, bool per_slot, bool strided) {
    const std::string name = "mul_mat_id " + std::string(ggml_type_name(type)) + " " + std::to_string(k) + "x" +
                             std::to_string(rows) + (per_slot ? " per slot" : "") + (strided ? " strided" : "");
    const Weights w(cpu, type, k, rows, EXPERTS);
    const int64_t slots  = per_slot ? USED : 1;
    const int64_t stride = strided ? k + PAD : k;
    const floats  x      = random_floats(stride * slots * MOST, 13);
    // as a router gives them: the first of a row of all experts, sorted
    std::vector<int32_t> ids(EXPERTS * MOST, 4);
    for (int64_t t = 0; t < MOST; ++t) {
        for (int64_t s = 0; s < USED; ++s) {
            ids[t * EXPERTS + s] = expert(t, s);
        }
    }
    const auto alone = check_columns(name, MOST, [&](int threads, int64_t first, int64_t n, bool plain) {
        return compute(cpu, threads, [&](Graph & g) {
            ggml_tensor * all    = ggml_new_tensor_3d(g.ctx, GGML_TYPE_F32, stride, slots, n);
            ggml_tensor * sorted = ggml_new_tensor_2d(g.ctx, GGML_TYPE_I32, EXPERTS, n);
            g.inputs = {{all, &x[first * slots * stride]}, {sorted, &ids[first * EXPERTS]}};
            ggml_tensor * b = strided ? ggml_view_3d(g.ctx, all, k, slots, n, all->nb[1], all->nb[2], 0) : all;
            return ggml_mul_mat_id(g.ctx, plain ? w.plain : w.packed, b, ggml_view_2d(g.ctx, sorted, USED, n, sorted->nb[1], 0));
        });
    });
    for (int64_t t = 0; t < MOST; ++t) {
        for (int64_t s = 0; s < USED; ++s) {
            check_bound(name, is_float(type), &w.values[expert(t, s) * rows * k], k, rows, &x[(t * slots + s % slots) * stride], &alone[t][s * rows]);
        }
    }
}

void check(const Cpu & cpu, ggml_type type) {
    const int64_t unit = ggml_blck_size(type) > 64 ? ggml_blck_size(type) : 64;
    check_mul_mat(cpu, type, 2 * unit, 67, CONTIGUOUS);
    check_mul_mat(cpu, type, 5 * unit, 1, CONTIGUOUS);
    check_mul_mat(cpu, type, unit, 692, CONTIGUOUS); // chunks of several panels, the last not full
    check_mul_mat(cpu, type, unit, 33, STRIDED);
    check_mul_mat(cpu, type, 2 * unit, 20, PERMUTED);
    check_mul_mat_id(cpu, type, unit, 112, false, false); // the same
    check_mul_mat_id(cpu, type, unit, 19, true, false);
    check_mul_mat_id(cpu, type, unit, 5, false, true);
    check_mul_mat_id(cpu, type, unit, 1, true, true);
    if (is_float(type)) { // rows of any length
        check_mul_mat(cpu, type, 77, 21, PERMUTED);
        check_mul_mat(cpu, type, 3, 1, CONTIGUOUS);
        check_mul_mat(cpu, type, 100, 50, STRIDED, 12);
        check_mul_mat_id(cpu, type, 45, 18, true, true);
    }
}

} // namespace

int main() {
    ggml_backend_load_all();
    const Cpu cpu;
    if (!cpu.packed) {
        std::printf("no kernels on this processor, or none that SRHPM_ISA names\n");
        return 77;
    }
    for (const srhpm::Format & f : srhpm::formats) {
        check(cpu, f.type);
    }
    for (const ggml_type type : srhpm::float_types) {
        check(cpu, type);
    }
    std::printf("%d formats, %d graphs: %s\n", srhpm::N_FORMATS + srhpm::N_FLOAT_TYPES, graphs, failures ? "FAILED" : "all right");
    return failures ? 1 : 0;
}
