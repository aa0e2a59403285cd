// SR-HPM: the buffer type. Weights are packed when they are set (pack.h), in parallel, into memory
// that asks for huge pages, and unpacked when they are got; products are in srhpm-mul-mat.cpp.

#include "srhpm-buffer.h"

#include "ggml-backend-impl.h"
#include "ggml-cpu.h"
#include "kernels.h"
#include "pack.h"
#include "srhpm-floats.h"
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

// Runs work(first, last) over all of [0, all), `step` at a time, on all processors.
template <class Work> void share(int64_t all, int64_t step, const Work & work) {
    std::atomic<int64_t> next{0};
    const auto           run = [&] {
        for (int64_t first = next.fetch_add(step); first < all; first = next.fetch_add(step)) {
            work(first, std::min(first + step, all));
        }
    };
    const int64_t            wanted = std::min<int64_t>(std::thread::hardware_concurrency(), (all + step - 1) / step);
    std::vector<std::thread> threads;
    for (int64_t i = 1; i < wanted; ++i) {
        try {
            threads.emplace_back(run);
        } catch (const std::system_error &) {
            break; // fewer do as well
        }
    }
    run();
    for (auto & t : threads) {
        t.join();
    }
}

// How a packed tensor is cut into panels, counted over all its matrices.
struct Panels {
    const srhpm::Format & format;
    int64_t               k, rows;
    int64_t               per_matrix, all;
    size_t                row_bytes, matrix_bytes; // as ggml lays them out
    size_t                bytes;                   // of a panel
    int64_t               step;                    // panels that about fill a huge page

    Panels(const srhpm::Format & f, const ggml_tensor * t) :
        format(f), k(t->ne[0]), rows(t->ne[1]), per_matrix((rows + srhpm::ROWS - 1) / srhpm::ROWS), all(per_matrix * t->ne[2]),
        row_bytes(t->nb[1]), matrix_bytes(t->nb[2]), bytes(srhpm::packed_size(f, k, srhpm::ROWS)),
        step(std::max<int64_t>(1, (int64_t) (HUGE_PAGE / (bytes + 1)))) {}

    int64_t first_row(int64_t panel) const { return panel % per_matrix * srhpm::ROWS; }
    int64_t rows_of(int64_t panel) const { return std::min<int64_t>(srhpm::ROWS, rows - first_row(panel)); }
    // where the panel's rows lie in ggml's layout
    size_t offset(int64_t panel) const { return panel / per_matrix * matrix_bytes + first_row(panel) * row_bytes; }
    // the panel that holds this byte of it
    int64_t at(size_t byte) const {
        return (int64_t) (byte / matrix_bytes) * per_matrix + (int64_t) (byte % matrix_bytes / row_bytes) / srhpm::ROWS;
    }
};

// Packs a whole tensor, panels shared out among threads: each page is first touched by one of them.
void set_tensor(ggml_backend_buffer_t, ggml_tensor * tensor, const void * data, size_t offset, size_t size) {
    const srhpm::Format * f = format_of(tensor);
    if (!f) {
        memcpy((char *) tensor->data + offset, data, size);
        return;
    }
    GGML_ASSERT(offset == 0 && size == ggml_nbytes(tensor));
    const Panels panels(*f, tensor);
    share(panels.all, panels.step, [&](int64_t first, int64_t last) {
        for (int64_t p = first; p < last; ++p) {
            const int64_t matrix = p / panels.per_matrix;
            const int64_t at     = p % panels.per_matrix;
            srhpm::pack(*f, (const uint8_t *) data + matrix * panels.matrix_bytes, panels.k, panels.rows, at, at + 1,
                        (uint8_t *) tensor->data + matrix * panels.per_matrix * panels.bytes);
        }
    });
}

// Unpacks any bytes of a tensor, or of a view of it: for a GPU that borrows weights for a prompt, and
// whoever else reads them.
void get_tensor(ggml_backend_buffer_t, const ggml_tensor * tensor, void * data, size_t offset, size_t size) {
    const ggml_tensor *   whole = tensor->view_src ? tensor->view_src : tensor;
    const srhpm::Format * f     = format_of(whole);
    if (!f || !size) {
        memcpy(data, (const char *) tensor->data + offset, size);
        return;
    }
    const size_t  begin = offset + tensor->view_offs;
    const size_t  end   = begin + size;
    const Panels  panels(*f, whole);
    const int64_t before = panels.at(begin);
    share(panels.at(end - 1) + 1 - before, panels.step, [&](int64_t first, int64_t last) {
        std::vector<uint8_t> part;
        for (int64_t p = before + first; p < before + last; ++p) {
            const auto * from = (const uint8_t *) whole->data + p * panels.bytes;
            const size_t at   = panels.offset(p);
            const size_t n    = panels.rows_of(p) * panels.row_bytes;
            auto *       to   = (uint8_t *) data + ((ptrdiff_t) at - (ptrdiff_t) begin);
            if (at >= begin && at + n <= end && (uintptr_t) to % 4 == 0) {
                srhpm::unpack(*f, from, panels.k, (int) panels.rows_of(p), to);
                continue;
            }
            part.resize(n);
            srhpm::unpack(*f, from, panels.k, (int) panels.rows_of(p), part.data());
            const size_t some = std::max(at, begin);
            memcpy((uint8_t *) data + (some - begin), &part[some - at], std::min(at + n, end) - some);
        }
    });
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
    buffer->iface.get_tensor  = get_tensor;
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
        return takes(op) ? (ggml::cpu::tensor_traits *) op->src[0]->extra : srhpm_floats_traits(op);
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
