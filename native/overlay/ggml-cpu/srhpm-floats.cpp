// SR-HPM: matrix products over weights that are floats (F32, F16, BF16), in upstream's buffers: mapped
// from the file, or a GPU's kind of RAM. Nothing is packed, so that each pass can go either way: wide
// dense ones (prompts) stay upstream's, which has blocked kernels for them. For experts it has none.

#include "srhpm-floats.h"

#include "ggml-backend-impl.h"
#include "kernels.h"
#include "srhpm-exact.h"
#include "srhpm-products.h"

namespace {

// Tokens of the widest dense pass that is ours where exactness asks for no more. With AVX-512 ours are
// faster for F16 and F32 at any width (upstream's take 1.13 and 1.27 of the time at 128), but for BF16, where
// upstream has products of 16-bit pairs, only up to about 10.
constexpr int64_t NARROW = 8;

bool in_plain_layout(const ggml_tensor * weights) {
    const ggml_tensor * whole = weights->view_src ? weights->view_src : weights;
    return (!whole->buffer || ggml_backend_buft_is_host(whole->buffer->buft)) &&
           weights->nb[0] == ggml_type_size(weights->type);
}

bool takes(const ggml_tensor * op) {
    const bool experts = op->op == GGML_OP_MUL_MAT_ID;
    if (!experts && op->op != GGML_OP_MUL_MAT) {
        return false;
    }
    const ggml_tensor * w = op->src[0];
    const ggml_tensor * x = op->src[1];
    if (srhpm::float_index(w->type) < 0 || !in_plain_layout(w) || x->type != GGML_TYPE_F32 || x->nb[0] != sizeof(float)) {
        return false;
    }
    if (experts) {
        return true;
    }
    // upstream multiplies by a Hadamard matrix without reading it
    return w->ne[2] == 1 && w->ne[3] == 1 && op->op_params[1] == GGML_HINT_NONE &&
           (x->ne[1] <= NARROW || srhpm_exact(x->ne[1]));
}

class Traits : public ggml::cpu::tensor_traits {
    static size_t bytes(const ggml_tensor * op) { return 64 + srhpm_products::size(op); }

    bool work_size(int, const ggml_tensor * op, size_t & size) override {
        size = bytes(op);
        return true;
    }

    bool compute_forward(ggml_compute_params * params, ggml_tensor * op) override {
        GGML_ASSERT(params->wsize >= bytes(op) && op->nb[0] == sizeof(float));
        const ggml_tensor *  w   = op->src[0];
        const auto           run = srhpm::chosen_kernels()->multiply_floats[srhpm::float_index(w->type)];
        const srhpm_products products(op, (char *) srhpm::align64((size_t) params->wdata));
        if (params->ith == 0) {
            products.sort([&](int64_t r) { return srhpm_row(op->src[1], r); });
            ggml_threadpool_chunk_set(params->threadpool, params->nth);
        }
        ggml_barrier(params->threadpool);

        products.share(params, [&](int32_t m, const void ** columns, float ** out, int64_t n, int64_t first, int64_t last) {
            const auto * weights = (const uint8_t *) w->data + m * w->nb[2];
            run({weights, w->nb[1], w->ne[0], w->ne[1], (const float **) columns, out, n}, first, last);
        });
        return true;
    }
};

} // namespace

ggml::cpu::tensor_traits * srhpm_floats_traits(const ggml_tensor * op) {
    static Traits traits;
    return takes(op) ? &traits : nullptr;
}
