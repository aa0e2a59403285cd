// SR-HPM: attention, shared out among threads.
//
// The queries of all heads and tokens that use one key/value head are cut into tasks of up to 8 rows.
// A task costs the same whatever its rows are, so tasks are dealt out in turn, without a counter.

#include "srhpm-attention.h"

#include "common.h"
#include "kernels.h"
#include "srhpm-exact.h"
#include "srhpm-switch.h"

#include <algorithm>
#include <cmath>

namespace {

using srhpm::MAX_ROWS;

// What op_params hold.
struct Settings {
    float scale, max_bias, softcap;

    explicit Settings(const ggml_tensor * op) { memcpy(this, op->op_params, sizeof(*this)); }
};

// Upstream's attention changes its way at this many queries, so ours takes all shorter batches: a pass
// that is a little wider than SRHPM_EXACT, as of several slots, then gives the same bits too.
constexpr int64_t QUERIES = ggml_fa_tile_config::Q;

bool for_us(const ggml_tensor * op) {
    const ggml_tensor * q = op->src[0];
    const ggml_tensor * k = op->src[1];
    const ggml_tensor * v = op->src[2];
    return srhpm_exact_columns() > 0 && q->ne[1] < QUERIES && srhpm_kernels_on() && q->type == GGML_TYPE_F32 && k->type == GGML_TYPE_F16 &&
           v->type == GGML_TYPE_F16 && k->ne[0] % 16 == 0 && v->ne[0] % 16 == 0 && k->ne[0] <= srhpm::MAX_HEAD &&
           v->ne[0] <= srhpm::MAX_HEAD && k->ne[2] == v->ne[2] && k->ne[3] == v->ne[3] && Settings(op).softcap == 0.0f;
}

// ALiBi: the mask's factor for a head; 1 without.
float slope(const ggml_tensor * op, int64_t head) {
    const float bias = Settings(op).max_bias;
    if (bias <= 0.0f) {
        return 1.0f;
    }
    const int64_t heads = op->src[0]->ne[2];
    int64_t       power = 1; // the largest power of two in `heads`
    while (power * 2 <= heads) {
        power *= 2;
    }
    return head < power ? std::pow(2.0f, -bias * (head + 1) / power) : std::pow(2.0f, -bias / 2 * (2 * (head - power) + 1) / power);
}

template <class T> const T * at(const ggml_tensor * t, int64_t i1, int64_t i2, int64_t i3) {
    return (const T *) ((const char *) t->data + i1 * t->nb[1] + i2 * t->nb[2] + i3 * t->nb[3]);
}

} // namespace

bool srhpm_flash_attn(const ggml_compute_params * params, ggml_tensor * op) {
    if (params->use_ref || !for_us(op)) { // the reference is what we are compared with
        return false;
    }
    const ggml_tensor * q     = op->src[0];
    const ggml_tensor * k     = op->src[1];
    const ggml_tensor * v     = op->src[2];
    const ggml_tensor * mask  = op->src[3];
    const ggml_tensor * sinks = op->src[4];

    const int64_t tokens = q->ne[1];
    const int64_t shared = q->ne[2] / k->ne[2]; // heads of a key/value head
    const int64_t rows   = shared * tokens;
    const int64_t groups = k->ne[2] * q->ne[3];
    // as few tasks as keep all threads busy, of about as many rows each
    const int64_t tasks = std::max((rows + MAX_ROWS - 1) / MAX_ROWS, std::min<int64_t>(rows, (params->nth + groups - 1) / groups));

    for (int64_t i = params->ith; i < groups * tasks; i += params->nth) {
        const int64_t group = i / tasks;
        const int64_t i3    = group / k->ne[2];
        const int64_t head  = group % k->ne[2];
        const int64_t first = rows * (i % tasks) / tasks;
        const int64_t last  = rows * (i % tasks + 1) / tasks;

        srhpm::Attention t{};
        t.dk       = k->ne[0];
        t.dv       = v->ne[0];
        t.n_kv     = k->ne[1];
        t.k        = at<uint8_t>(k, 0, head, i3 * k->ne[3] / q->ne[3]);
        t.v        = at<uint8_t>(v, 0, head, i3 * v->ne[3] / q->ne[3]);
        t.k_stride = k->nb[1];
        t.v_stride = v->nb[1];
        t.scale    = Settings(op).scale;
        t.rows     = (int) (last - first);
        for (int r = 0; r < t.rows; ++r) {
            const int64_t h     = head * shared + (first + r) / tokens;
            const int64_t token = (first + r) % tokens;
            t.q[r]     = at<float>(q, token, h, i3);
            t.mask[r]  = mask ? at<uint8_t>(mask, token, h % mask->ne[2], i3 % mask->ne[3]) : nullptr;
            t.slope[r] = slope(op, h);
            t.sink[r]  = sinks ? ((const float *) sinks->data)[h] : -INFINITY;
            t.out[r]   = (float *) ((char *) op->data + (i3 * op->ne[2] * op->ne[1] + h + token * op->ne[1]) * op->nb[1]);
        }
        srhpm::chosen_kernels()->attend(t);
    }
    return true;
}
