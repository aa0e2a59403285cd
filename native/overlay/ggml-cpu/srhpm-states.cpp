#include "srhpm-states.h"

#include "srhpm-rollback.h"

#include "ggml-impl.h"
#include "ops.h"

#include <algorithm>

namespace {

thread_local float * states = nullptr;
thread_local int64_t stride = 0;

const ggml_tensor * root(const ggml_tensor * t) {
    return t->view_src ? t->view_src : t;
}

bool is_output(const ggml_tensor * t) {
    return (t->flags & GGML_TENSOR_FLAG_OUTPUT) != 0;
}

// The index of the copy that takes the states of the operation at `at` and nothing else does, or -1.
int copy_of(const ggml_cgraph * graph, int at) {
    const ggml_tensor * op   = graph->nodes[at];
    int                 next = at + 1, tail = -1;
    while (next < graph->n_nodes && ggml_op_is_empty(graph->nodes[next]->op)) {
        next++;
    }
    if (next == graph->n_nodes) {
        return -1;
    }
    const ggml_tensor * copy = graph->nodes[next];
    if (copy->op != GGML_OP_CPY || !(copy->flags & GGML_TENSOR_FLAG_COMPUTE) || is_output(copy) || is_output(op)) {
        return -1;
    }
    const ggml_tensor * from = copy->src[0];
    const ggml_tensor * to   = copy->src[1];
    for (int i = at + 1; i < next; ++i) {
        tail = graph->nodes[i] == from ? i : tail;
    }
    // the states and the output are views of it, one each, and the copy alone reads the states
    if (tail < 0 || is_output(from) || ggml_node_get_use_count(graph, at) != 2 || ggml_node_get_use_count(graph, tail) != 1) {
        return -1;
    }

    const ggml_tensor * v       = op->src[2];
    const int64_t       outputs = v->ne[0] * v->ne[1] * v->ne[2] * v->ne[3];
    const int64_t       state   = v->ne[0] * v->ne[0] * v->ne[1];
    const int64_t       kept    = std::min<int64_t>(v->ne[2], ggml_get_op_params_i32(op, 0));
    if (op->type != GGML_TYPE_F32 || from->type != GGML_TYPE_F32 || from->view_src != op || !ggml_is_contiguous(from) ||
        from->view_offs != outputs * sizeof(float)) {
        return -1;
    }
    const int64_t shape[] = {state, v->ne[3], kept, 1};
    if (to->type != GGML_TYPE_F32 || !to->data || !std::equal(shape, shape + 4, to->ne) || to->nb[0] != sizeof(float) ||
        (size_t) state * sizeof(float) != to->nb[1]) {
        return -1;
    }
    // what it reads must not be what it writes
    for (int i = 0; i < 6; ++i) {
        if (root(op->src[i]) == root(to)) {
            return -1;
        }
    }
    return next;
}

} // namespace

float * srhpm_states() {
    return states;
}

int64_t srhpm_states_stride() {
    return stride;
}

int srhpm_write_states(const ggml_cgraph * graph, int at, const ggml_compute_params * params) {
    ggml_tensor * op = graph->nodes[at];
    if (op->op != GGML_OP_GATED_DELTA_NET || !srhpm_states_in_place()) {
        return 0;
    }
    const int copy = copy_of(graph, at);
    if (copy < 0) {
        return 0;
    }
    const ggml_tensor * to = graph->nodes[copy]->src[1];
    states = (float *) to->data;
    stride = (int64_t) (to->nb[2] / sizeof(float));
    ggml_compute_forward_gated_delta_net(params, op);
    states = nullptr;
    return copy - at;
}
