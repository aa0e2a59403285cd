// SR-HPM: matrix products over packed weights. Activations are quantized by all threads first.

#include "srhpm-mul-mat.h"

#include "kernels.h"
#include "pack.h"
#include "srhpm-products.h"

namespace {

using srhpm::Activation;
using srhpm::BLOCK;

const srhpm::Format & format_of(const ggml_tensor * op) {
    return srhpm::formats[srhpm::format_index(op->src[0]->type)];
}

// This thread's share of all blocks of src1, those that share a scale together.
void quantize(const ggml_compute_params * params, const ggml_tensor * op, Activation * out) {
    const ggml_tensor * x      = op->src[1];
    const auto          run    = srhpm::chosen_kernels()->quantize;
    const int64_t       blocks = x->ne[0] / BLOCK;
    const int64_t       unit   = srhpm::span(format_of(op));
    const int64_t       all    = blocks * ggml_nrows(x) / unit;
    const int64_t       end    = all * (params->ith + 1) / params->nth * unit;
    for (int64_t b = all * params->ith / params->nth * unit; b < end;) {
        const int64_t r    = b / blocks;
        const int64_t from = b - r * blocks;
        const int64_t n    = std::min(blocks - from, end - b);
        run(srhpm_row(x, r) + from * BLOCK, out + b, n, format_of(op));
        b += n;
    }
}

class Traits : public ggml::cpu::tensor_traits {
    static size_t activation_bytes(const ggml_tensor * op) {
        return srhpm::align64(ggml_nrows(op->src[1]) * (op->src[0]->ne[0] / BLOCK) * sizeof(Activation));
    }

    static size_t bytes(const ggml_tensor * op) { return 64 + activation_bytes(op) + srhpm_products::size(op); }

    bool work_size(int, const ggml_tensor * op, size_t & size) override {
        size = bytes(op);
        return true;
    }

    bool compute_forward(ggml_compute_params * params, ggml_tensor * op) override {
        GGML_ASSERT(op->src[1]->nb[0] == sizeof(float) && op->nb[0] == sizeof(float));
        GGML_ASSERT(params->wsize >= bytes(op));
        const ggml_tensor *   w      = op->src[0];
        const srhpm::Format & f      = format_of(op);
        const int64_t         blocks = w->ne[0] / BLOCK;
        const auto            run    = srhpm::chosen_kernels()->multiply[&f - srhpm::formats];
        const size_t          matrix = srhpm::packed_size(f, w->ne[0], w->ne[1]);

        char * at          = (char *) srhpm::align64((size_t) params->wdata);
        auto * activations = (Activation *) at;
        const srhpm_products products(op, at + activation_bytes(op));
        quantize(params, op, activations);
        if (params->ith == 0) {
            products.sort([&](int64_t r) { return activations + r * blocks; });
            ggml_threadpool_chunk_set(params->threadpool, params->nth);
        }
        ggml_barrier(params->threadpool);

        products.share(params, [&](int32_t m, const void ** columns, float ** out, int64_t n, int64_t first, int64_t last) {
            run({(const uint8_t *) w->data + m * matrix, blocks, w->ne[1], (const Activation **) columns, out, n}, first, last);
        });
        return true;
    }
};

} // namespace

ggml::cpu::tensor_traits * srhpm_mul_mat_traits() {
    static Traits traits;
    return &traits;
}
