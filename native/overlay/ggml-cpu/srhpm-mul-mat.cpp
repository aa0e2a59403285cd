// SR-HPM: matrix products over packed weights.
//
// All threads quantize the activations, meet, and take chunks of panels (16 rows each) until none is
// left. A chunk runs through all columns: its weights are read from memory once.

#include "srhpm-mul-mat.h"

#include "kernels.h"
#include "pack.h"

#include <algorithm>

namespace {

using srhpm::Activation;
using srhpm::BLOCK;
using srhpm::ROWS;

constexpr int64_t CHUNKS_PER_THREAD = 8; // enough to even out a slow thread, few enough to stay cheap

size_t align(size_t n) {
    return srhpm::align64(n);
}

// The parts of the work buffer. Everything is sized by the number of products: columns of a dense
// product, (token, expert) pairs of one over experts.
struct Workspace {
    Activation *        activations; // one row of K / 32 blocks per row of src1
    const Activation ** columns;
    float **            out;
    int32_t *           first;  // of each expert's products; experts + 1 entries
    int32_t *           active; // how many experts have any, then which

    static int64_t products(const ggml_tensor * op) {
        return op->op == GGML_OP_MUL_MAT_ID ? ggml_nelements(op->src[2]) : ggml_nrows(op->src[1]);
    }

    static size_t activation_bytes(const ggml_tensor * op) {
        return align(ggml_nrows(op->src[1]) * (op->src[0]->ne[0] / BLOCK) * sizeof(Activation));
    }

    static size_t expert_bytes(const ggml_tensor * op) {
        return align((op->src[0]->ne[2] + 1) * sizeof(int32_t));
    }

    static size_t size(const ggml_tensor * op) {
        return 64 + activation_bytes(op) + 2 * align(products(op) * sizeof(void *)) + 2 * expert_bytes(op);
    }

    Workspace(const ggml_compute_params * params, const ggml_tensor * op) {
        GGML_ASSERT(params->wsize >= size(op));
        auto * at   = (char *) align((size_t) params->wdata);
        activations = (Activation *) at;
        at += activation_bytes(op);
        columns = (const Activation **) at;
        at += align(products(op) * sizeof(void *));
        out = (float **) at;
        at += align(products(op) * sizeof(void *));
        first = (int32_t *) at;
        at += expert_bytes(op);
        active = (int32_t *) at;
    }
};

// Row r of a tensor of floats, counted over its three outer dimensions.
const float * row(const ggml_tensor * t, int64_t r) {
    const int64_t i1 = r % t->ne[1];
    const int64_t i2 = r / t->ne[1] % t->ne[2];
    const int64_t i3 = r / t->ne[1] / t->ne[2];
    return (const float *) ((const char *) t->data + i1 * t->nb[1] + i2 * t->nb[2] + i3 * t->nb[3]);
}

// This thread's share of all blocks of src1.
void quantize(const ggml_compute_params * params, const ggml_tensor * op, const Workspace & work) {
    const ggml_tensor *   x      = op->src[1];
    const srhpm::Format & f      = srhpm::formats[srhpm::format_index(op->src[0]->type)];
    const auto            run    = srhpm::chosen_kernels()->quantize;
    const int64_t         blocks = x->ne[0] / BLOCK;
    const int64_t         all    = blocks * ggml_nrows(x);
    const int64_t         end    = all * (params->ith + 1) / params->nth;
    for (int64_t b = all * params->ith / params->nth; b < end;) {
        const int64_t r    = b / blocks;
        const int64_t from = b - r * blocks;
        const int64_t n    = std::min(blocks - from, end - b);
        run(row(x, r) + from * BLOCK, work.activations + b, n, f);
        b += n;
    }
}

// Runs run(matrix, first panel, last panel) for `matrices` times `panels`, chunk by chunk.
template <class Run> void share(const ggml_compute_params * params, int64_t matrices, int64_t panels, Run && run) {
    const int64_t per = std::max<int64_t>(1, panels * matrices / (params->nth * CHUNKS_PER_THREAD));
    const int64_t chunks = (panels + per - 1) / per;
    for (int64_t c = params->ith; c < chunks * matrices; c = ggml_threadpool_chunk_add(params->threadpool, 1)) {
        const int64_t first = c % chunks * per;
        run(c / chunks, first, std::min(first + per, panels));
    }
}

void mul_mat(const ggml_compute_params * params, const ggml_tensor * op) {
    const ggml_tensor * w      = op->src[0];
    const Workspace     work(params, op);
    const int64_t       blocks = w->ne[0] / BLOCK;
    const int64_t       n      = Workspace::products(op);

    quantize(params, op, work);
    if (params->ith == 0) {
        for (int64_t j = 0; j < n; ++j) {
            work.columns[j] = work.activations + j * blocks;
            work.out[j]     = const_cast<float *>(row(op, j));
        }
        ggml_threadpool_chunk_set(params->threadpool, params->nth);
    }
    ggml_barrier(params->threadpool);

    const srhpm::Product product{(const uint8_t *) w->data, blocks, w->ne[1], work.columns, work.out, n};
    const auto           run = srhpm::chosen_kernels()->multiply[srhpm::format_index(w->type)];
    share(params, 1, (w->ne[1] + ROWS - 1) / ROWS, [&](int64_t, int64_t first, int64_t last) { run(product, first, last); });
}

int32_t expert(const ggml_tensor * ids, int64_t slot, int64_t token) {
    return *(const int32_t *) ((const char *) ids->data + slot * ids->nb[0] + token * ids->nb[1]);
}

// Sorts the (token, slot) pairs by expert.
void sort_by_expert(const ggml_tensor * op, const Workspace & work) {
    const ggml_tensor * w       = op->src[0];
    const ggml_tensor * x       = op->src[1];
    const ggml_tensor * ids     = op->src[2];
    const int64_t       blocks  = w->ne[0] / BLOCK;
    const int64_t       experts = w->ne[2];

    std::fill(work.first, work.first + experts + 1, 0);
    const auto each = [&](auto && f) {
        for (int64_t token = 0; token < ids->ne[1]; ++token) {
            for (int64_t slot = 0; slot < ids->ne[0]; ++slot) {
                const int32_t e = expert(ids, slot, token);
                GGML_ASSERT(e >= 0 && e < experts);
                f(e, slot, token);
            }
        }
    };
    each([&](int32_t e, int64_t, int64_t) { work.first[e + 1]++; });
    for (int64_t e = 0; e < experts; ++e) {
        work.first[e + 1] += work.first[e];
    }
    // first[e] moves up as places are taken, and becomes first[e + 1]'s old value
    each([&](int32_t e, int64_t slot, int64_t token) {
        const int32_t at = work.first[e]++;
        work.columns[at] = work.activations + (token * x->ne[1] + slot % x->ne[1]) * blocks;
        work.out[at]     = (float *) ((char *) op->data + slot * op->nb[1] + token * op->nb[2]);
    });
    for (int64_t e = experts; e > 0; --e) {
        work.first[e] = work.first[e - 1];
    }
    work.first[0]  = 0;
    work.active[0] = 0;
    for (int32_t e = 0; e < experts; ++e) {
        if (work.first[e + 1] > work.first[e]) {
            work.active[++work.active[0]] = e;
        }
    }
}

void mul_mat_id(const ggml_compute_params * params, const ggml_tensor * op) {
    const ggml_tensor *   w = op->src[0];
    const srhpm::Format & f = srhpm::formats[srhpm::format_index(w->type)];
    const Workspace       work(params, op);
    const int64_t         blocks = w->ne[0] / BLOCK;

    quantize(params, op, work);
    if (params->ith == 0) {
        sort_by_expert(op, work);
        ggml_threadpool_chunk_set(params->threadpool, params->nth);
    }
    ggml_barrier(params->threadpool);

    const auto   run   = srhpm::chosen_kernels()->multiply[&f - srhpm::formats];
    const size_t bytes = srhpm::packed_size(f, w->ne[0], w->ne[1]);
    share(params, work.active[0], (w->ne[1] + ROWS - 1) / ROWS, [&](int64_t i, int64_t first, int64_t last) {
        const int32_t e    = work.active[i + 1];
        const int32_t from = work.first[e];
        const int32_t n    = work.first[e + 1] - from;
        run({(const uint8_t *) w->data + e * bytes, blocks, w->ne[1], work.columns + from, work.out + from, n}, first, last);
    });
}

class Traits : public ggml::cpu::tensor_traits {
    bool work_size(int, const ggml_tensor * op, size_t & size) override {
        size = Workspace::size(op);
        return true;
    }

    bool compute_forward(ggml_compute_params * params, ggml_tensor * op) override {
        GGML_ASSERT(op->src[1]->nb[0] == sizeof(float) && op->nb[0] == sizeof(float));
        if (op->op == GGML_OP_MUL_MAT_ID) {
            mul_mat_id(params, op);
        } else {
            mul_mat(params, op);
        }
        return true;
    }
};

} // namespace

ggml::cpu::tensor_traits * srhpm_mul_mat_traits() {
    static Traits traits;
    return &traits;
}
