// SR-HPM: the buffer type. Weights are packed when they are set (pack.h), in parallel, into memory
// that asks for huge pages; products are in srhpm-mul-mat.cpp.

#include "srhpm-buffer.h"

#include "ggml-backend-impl.h"
#include "ggml-cpu.h"
#include "kernels.h"
#include "pack.h"
#include "srhpm-mul-mat.h"
#include "srhpm-switch.h"
#include "traits.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <system_error>
#include <thread>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace {

constexpr size_t ALIGNMENT = 64;
constexpr size_t HUGE_PAGE = 2u << 20;

const srhpm::Format * format_of(const ggml_tensor * weights) {
    const bool whole = weights->view_src == nullptr && ggml_is_contiguous(weights) && weights->ne[3] == 1;
    return whole && srhpm::packable(weights->type, weights->ne[0]) ? &srhpm::formats[srhpm::format_index(weights->type)] : nullptr;
}

const char * get_name(ggml_backend_buffer_type_t) {
    return "CPU_SRHPM";
}

size_t get_alignment(ggml_backend_buffer_type_t) {
    return ALIGNMENT;
}

size_t get_alloc_size(ggml_backend_buffer_type_t, const ggml_tensor * tensor) {
    const srhpm::Format * f = format_of(tensor);
    return f ? srhpm::packed_size(*f, tensor->ne[0], tensor->ne[1]) * (size_t) tensor->ne[2] : ggml_nbytes(tensor);
}

ggml_status init_tensor(ggml_backend_buffer_t, ggml_tensor * tensor) {
    tensor->extra = format_of(tensor) ? srhpm_mul_mat_traits() : nullptr;
    return GGML_STATUS_SUCCESS;
}

// Packs a whole tensor, panels shared out among threads: each page is first touched by one of them.
void set_tensor(ggml_backend_buffer_t, ggml_tensor * tensor, const void * data, size_t offset, size_t size) {
    GGML_ASSERT(offset == 0 && size == ggml_nbytes(tensor));
    const srhpm::Format * f = format_of(tensor);
    if (!f) {
        memcpy(tensor->data, data, size);
        return;
    }
    const int64_t k         = tensor->ne[0];
    const int64_t rows      = tensor->ne[1];
    const int64_t panels    = (rows + srhpm::ROWS - 1) / srhpm::ROWS;
    const int64_t all       = panels * tensor->ne[2];
    const size_t  in_bytes  = tensor->nb[2];
    const size_t  out_bytes = srhpm::packed_size(*f, k, rows);

    std::atomic<int64_t> next{0};
    const int64_t        step = std::max<int64_t>(1, (int64_t) (HUGE_PAGE / (out_bytes / panels + 1)));
    const auto           work = [&] {
        for (int64_t first = next.fetch_add(step); first < all; first = next.fetch_add(step)) {
            const int64_t last = std::min(first + step, all);
            for (int64_t p = first; p < last;) {
                const int64_t matrix = p / panels;
                const int64_t from   = p - matrix * panels;
                const int64_t to     = std::min(panels, from + last - p);
                srhpm::pack(*f, (const uint8_t *) data + matrix * in_bytes, k, rows, from, to,
                            (uint8_t *) tensor->data + matrix * out_bytes);
                p += to - from;
            }
        }
    };
    const int64_t            wanted = std::min<int64_t>(std::thread::hardware_concurrency(), (all + step - 1) / step);
    std::vector<std::thread> threads;
    for (int64_t i = 1; i < wanted; ++i) {
        try {
            threads.emplace_back(work);
        } catch (const std::system_error &) {
            break; // fewer do as well
        }
    }
    work();
    for (auto & t : threads) {
        t.join();
    }
}

ggml_backend_buffer_t alloc_buffer(ggml_backend_buffer_type_t buft, size_t size) {
    // a huge page can only lie at a multiple of its size
    ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(ggml_backend_cpu_buffer_type(), size);
    if (!buffer) {
        return nullptr;
    }
    buffer->buft              = buft;
    buffer->iface.init_tensor = init_tensor;
    buffer->iface.set_tensor  = set_tensor;
    buffer->iface.get_tensor  = nullptr; // packing is not undone
    buffer->iface.cpy_tensor  = nullptr;
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    const auto begin = ((uintptr_t) ggml_backend_buffer_get_base(buffer) + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    const auto end   = ((uintptr_t) ggml_backend_buffer_get_base(buffer) + size) / HUGE_PAGE * HUGE_PAGE;
    if (end > begin) {
        madvise((void *) begin, end - begin, MADV_HUGEPAGE); // a wish: without, pages are small
    }
#endif
    return buffer;
}

ggml_backend_buffer_type_t buffer_type();

class extra_buffer_type : public ggml::cpu::extra_buffer_type {
    static bool takes(const ggml_tensor * op) {
        const ggml_tensor * weights = op->src[0];
        if (op->op != GGML_OP_MUL_MAT && op->op != GGML_OP_MUL_MAT_ID) {
            return false;
        }
        return weights->buffer && weights->buffer->buft == buffer_type() && format_of(weights) &&
               (op->op == GGML_OP_MUL_MAT_ID || weights->ne[2] == 1);
    }

  public:
    bool supports_op(ggml_backend_dev_t, const ggml_tensor * op) override {
        const ggml_tensor * x = op->src[1];
        return takes(op) && x->type == GGML_TYPE_F32 && (!x->buffer || ggml_backend_buft_is_host(x->buffer->buft));
    }

    ggml::cpu::tensor_traits * get_tensor_traits(const ggml_tensor * op) override {
        return takes(op) ? (ggml::cpu::tensor_traits *) op->src[0]->extra : nullptr;
    }
};

ggml_backend_buffer_type_t buffer_type() {
    static ggml_backend_buffer_type type = [] {
        ggml_backend_buffer_type t{};
        t.iface.get_name       = get_name;
        t.iface.alloc_buffer   = alloc_buffer;
        t.iface.get_alignment  = get_alignment;
        t.iface.get_alloc_size = get_alloc_size;
        t.device               = ggml_backend_reg_dev_get(ggml_backend_cpu_reg(), 0);
        t.context              = new extra_buffer_type(); // lives as long as the process
        return t;
    }();
    return &type;
}

} // namespace

void srhpm_add_buffer_type(std::vector<ggml_backend_buffer_type_t> & types) {
    if (srhpm_kernels_on()) {
        types.push_back(buffer_type());
    }
}
