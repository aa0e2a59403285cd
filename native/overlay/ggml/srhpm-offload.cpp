#include "srhpm-offload.h"

#include <algorithm>
#include <map>
#include <mutex>

namespace {

// Large enough that threads have something to share, small enough to stay in the caches of many.
constexpr size_t PIECE = 16u << 20;

// Two pieces of RAM that the GPU reads fast, used in turn: one is filled while the other is uploaded.
class Staging {
    char * pieces = nullptr;
    int    next   = 0;

  public:
    void init(ggml_backend_t backend) {
        if (pieces) {
            return;
        }
        ggml_backend_buffer_type_t type   = ggml_backend_dev_host_buffer_type(ggml_backend_get_device(backend));
        ggml_backend_buffer_t      buffer = type ? ggml_backend_buft_alloc_buffer(type, 2 * PIECE) : nullptr;
        if (!buffer) {
            buffer = ggml_backend_buft_alloc_buffer(ggml_backend_cpu_buffer_type(), 2 * PIECE);
        }
        GGML_ASSERT(buffer && "no memory to lend weights");
        pieces = (char *) ggml_backend_buffer_get_base(buffer);
    }

    void copy(ggml_backend_t backend, const ggml_tensor * from, ggml_tensor * to, size_t offset, size_t size) {
        char * piece = pieces + next * PIECE;
        next         = 1 - next;
        ggml_backend_tensor_get(from, piece, offset, size);
        // All uploads so far are over, so the other piece is free to be filled.
        ggml_backend_synchronize(backend);
        ggml_backend_tensor_set_async(backend, to, piece, offset, size);
    }
};

} // namespace

bool srhpm_lend(ggml_backend_t to, const ggml_tensor * from, ggml_tensor * copy, size_t offset, size_t size) {
    if (!srhpm_lends(from->buffer)) {
        return false;
    }
    // One for each backend, as an upload may still be under way when the next call begins. Kept for good:
    // the next backend that a process makes often has the same address.
    static std::mutex                        mutex;
    static std::map<ggml_backend_t, Staging> all;
    std::lock_guard<std::mutex>              lock(mutex);
    Staging &                                staging = all[to];
    staging.init(to);
    for (size_t end = offset + size; offset < end; offset += PIECE) {
        staging.copy(to, from, copy, offset, std::min(PIECE, end - offset));
    }
    return true;
}
