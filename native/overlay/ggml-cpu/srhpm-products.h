// SR-HPM: what products over dense weights and over experts share, whatever form the weights have.
//
// All threads prepare the activations, meet, and take chunks of panels (16 rows each) until none is
// left. A chunk runs through all columns of its matrix: its weights are read from memory once.
#pragma once

#include "format.h"
#include "ggml-cpu-impl.h"
#include "ggml.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

// Row r of a tensor of floats, counted over its three outer dimensions.
inline float * srhpm_row(const ggml_tensor * t, int64_t r) {
    const int64_t i1 = r % t->ne[1];
    const int64_t i2 = r / t->ne[1] % t->ne[2];
    const int64_t i3 = r / t->ne[1] / t->ne[2];
    return (float *) ((char *) t->data + i1 * t->nb[1] + i2 * t->nb[2] + i3 * t->nb[3]);
}

// The products of a matrix and a column that an operation consists of, sorted by matrix: a dense one
// has one matrix, one over experts a matrix for each.
class srhpm_products {
    const ggml_tensor * op;
    const void **       columns;
    float **            out;
    int32_t *           first;  // of each matrix's products; matrices + 1 entries
    int32_t *           active; // how many matrices have any, then which

    static constexpr int64_t CHUNKS_PER_THREAD = 8; // enough to even out a slow thread, few enough to stay cheap

    static int64_t count(const ggml_tensor * op) {
        return op->op == GGML_OP_MUL_MAT_ID ? ggml_nelements(op->src[2]) : ggml_nrows(op->src[1]);
    }
    static int64_t matrices(const ggml_tensor * op) { return op->op == GGML_OP_MUL_MAT_ID ? op->src[0]->ne[2] : 1; }
    static size_t  pointer_bytes(const ggml_tensor * op) { return srhpm::align64(count(op) * sizeof(void *)); }
    static size_t  matrix_bytes(const ggml_tensor * op) { return srhpm::align64((matrices(op) + 1) * sizeof(int32_t)); }

    // Calls f(matrix, row of src1, result) for each product.
    template <class F> void each(F && f) const {
        const ggml_tensor * x   = op->src[1];
        const ggml_tensor * ids = op->src[2];
        if (op->op == GGML_OP_MUL_MAT) {
            for (int64_t j = 0; j < ggml_nrows(x); ++j) {
                f(0, j, srhpm_row(op, j));
            }
            return;
        }
        for (int64_t token = 0; token < ids->ne[1]; ++token) {
            for (int64_t slot = 0; slot < ids->ne[0]; ++slot) {
                const int32_t e = *(const int32_t *) ((const char *) ids->data + slot * ids->nb[0] + token * ids->nb[1]);
                GGML_ASSERT(e >= 0 && e < matrices(op));
                f(e, token * x->ne[1] + slot % x->ne[1], (float *) ((char *) op->data + slot * op->nb[1] + token * op->nb[2]));
            }
        }
    }

  public:
    // Bytes of work buffer, a multiple of 64.
    static size_t size(const ggml_tensor * op) { return 2 * pointer_bytes(op) + 2 * matrix_bytes(op); }

    srhpm_products(const ggml_tensor * op, char * at) : op(op) {
        columns = (const void **) at;
        out     = (float **) (at + pointer_bytes(op));
        first   = (int32_t *) (at + 2 * pointer_bytes(op));
        active  = (int32_t *) (at + 2 * pointer_bytes(op) + matrix_bytes(op));
    }

    // By one thread: column(r) is where the kernels find row r of src1.
    template <class Column> void sort(Column && column) const {
        const int64_t n = matrices(op);
        std::fill(first, first + n + 1, 0);
        each([&](int32_t m, int64_t, float *) { first[m + 1]++; });
        for (int64_t m = 0; m < n; ++m) {
            first[m + 1] += first[m];
        }
        // first[m] moves up as places are taken, and becomes first[m + 1]'s old value
        each([&](int32_t m, int64_t r, float * to) {
            const int32_t at = first[m]++;
            columns[at]      = column(r);
            out[at]          = to;
        });
        for (int64_t m = n; m > 0; --m) {
            first[m] = first[m - 1];
        }
        first[0]  = 0;
        active[0] = 0;
        for (int32_t m = 0; m < n; ++m) {
            if (first[m + 1] > first[m]) {
                active[++active[0]] = m;
            }
        }
    }

    // By all threads, after they met: run(matrix, columns, out, how many, first panel, last panel).
    template <class Run> void share(const ggml_compute_params * params, Run && run) const {
        const int64_t panels = (op->src[0]->ne[1] + srhpm::ROWS - 1) / srhpm::ROWS;
        const int64_t per    = std::max<int64_t>(1, panels * active[0] / (params->nth * CHUNKS_PER_THREAD));
        const int64_t chunks = (panels + per - 1) / per;
        for (int64_t c = params->ith; c < chunks * active[0]; c = ggml_threadpool_chunk_add(params->threadpool, 1)) {
            const int32_t m    = active[c / chunks + 1];
            const int64_t from = c % chunks * per;
            run(m, columns + first[m], out + first[m], first[m + 1] - first[m], from, std::min(from + per, panels));
        }
    }
};
