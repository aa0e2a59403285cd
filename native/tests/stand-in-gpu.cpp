#include "stand-in-gpu.h"

#include "ggml-backend-impl.h"
#include "ggml-impl.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>
#include <vector>

namespace {

constexpr int    LONG_BATCH    = 32; // from which upstream's GPUs borrow weights
constexpr size_t ALIGNMENT     = 128;
constexpr size_t CPU_ALIGNMENT = 32; // of RAM, as upstream's GPUs say

struct Device {
    ggml_backend_device        device{};
    ggml_backend_reg           reg{};
    ggml_backend_buffer_type   memory{}, host{};
    ggml_backend_dev_t         cpu   = nullptr; // which computes
    size_t                     total = 0;
    std::atomic<size_t>        used{0};
    std::atomic<int>           long_products{0}, short_products{0}, nodes{0}, graphs{0};
};
Device standin;

// ---- memory ---------------------------------------------------------------------------------------

// Tensors are given addresses that no processor maps: code that takes them for the CPU's ends there.
constexpr uintptr_t FIRST = (uintptr_t) 0x00a5 << 48;

struct Memory {
    std::unique_ptr<char[]> data;
    char *                  begin; // of the data, aligned
    uintptr_t               address;

    void * real(const void * p) const { return begin + ((uintptr_t) p - address); }
};

Memory & memory_of(ggml_backend_buffer_t buffer) {
    return *(Memory *) buffer->context;
}

char * at(ggml_backend_buffer_t buffer, const ggml_tensor * t, size_t offset) {
    return (char *) memory_of(buffer).real(t->data) + offset;
}

bool is_ours(ggml_backend_buffer_t buffer) {
    return buffer && buffer->buft == &standin.memory;
}

void free_buffer(ggml_backend_buffer_t buffer) {
    standin.used -= buffer->size;
    delete &memory_of(buffer);
}

void * get_base(ggml_backend_buffer_t buffer) {
    return (void *) memory_of(buffer).address;
}

void memset_tensor(ggml_backend_buffer_t buffer, ggml_tensor * t, uint8_t value, size_t offset, size_t size) {
    memset(at(buffer, t, offset), value, size);
}

void set_tensor(ggml_backend_buffer_t buffer, ggml_tensor * t, const void * data, size_t offset, size_t size) {
    memcpy(at(buffer, t, offset), data, size);
}

void get_tensor(ggml_backend_buffer_t buffer, const ggml_tensor * t, void * data, size_t offset, size_t size) {
    memcpy(data, at(buffer, t, offset), size);
}

bool cpy_tensor(ggml_backend_buffer_t buffer, const ggml_tensor * from, ggml_tensor * to) {
    ggml_backend_buffer_t source = from->view_src ? from->view_src->buffer : from->buffer;
    if (!is_ours(source)) {
        return false;
    }
    memcpy(at(buffer, to, 0), at(source, from, 0), ggml_nbytes(from));
    return true;
}

void clear(ggml_backend_buffer_t buffer, uint8_t value) {
    memset(memory_of(buffer).begin, value, buffer->size);
}

ggml_backend_buffer_t alloc_buffer(ggml_backend_buffer_type_t type, size_t size) {
    static std::atomic<uintptr_t> next{FIRST};
    if (standin.used + size > standin.total) {
        std::fprintf(stderr, "STANDIN0: %zu bytes do not fit\n", size);
        return nullptr;
    }
    standin.used += size;
    auto * m   = new Memory{std::make_unique<char[]>(size + ALIGNMENT), nullptr, next.fetch_add((size / 4096 + 2) * 4096)};
    m->begin   = (char *) (((uintptr_t) m->data.get() + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    ggml_backend_buffer_i i{};
    i.free_buffer   = free_buffer;
    i.get_base      = get_base;
    i.memset_tensor = memset_tensor;
    i.set_tensor    = set_tensor;
    i.get_tensor    = get_tensor;
    i.cpy_tensor    = cpy_tensor;
    i.clear         = clear;
    return ggml_backend_buffer_init(type, i, m, size);
}

// RAM that this GPU could read fast: a type of its own, as upstream's GPUs have.
ggml_backend_buffer_t alloc_host_buffer(ggml_backend_buffer_type_t type, size_t size) {
    ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(ggml_backend_cpu_buffer_type(), size);
    if (buffer) {
        buffer->buft = type;
    }
    return buffer;
}

// ---- computing --------------------------------------------------------------------------------------

// Tensors of a graph at their real addresses, as long as this lives.
class Mapped {
    std::set<ggml_tensor *> tensors;

    void add(ggml_tensor * t) {
        ggml_backend_buffer_t buffer = t->buffer ? t->buffer : t->view_src ? t->view_src->buffer : nullptr;
        if (t->data && is_ours(buffer) && tensors.insert(t).second) {
            t->data = memory_of(buffer).real(t->data);
        }
    }

  public:
    explicit Mapped(ggml_cgraph * graph) {
        for (int i = 0; i < graph->n_nodes; ++i) {
            add(graph->nodes[i]);
            for (ggml_tensor * source : graph->nodes[i]->src) {
                if (source) {
                    add(source);
                }
            }
        }
    }
    ~Mapped() {
        for (ggml_tensor * t : tensors) {
            const Memory & m = memory_of(t->buffer ? t->buffer : t->view_src->buffer);
            t->data          = (void *) (m.address + ((char *) t->data - m.begin));
        }
    }
    Mapped(const Mapped &) = delete;
    Mapped & operator=(const Mapped &) = delete;
};

// Upstream's rule for CUDA (ggml-cuda.cu, get_op_batch_size).
int64_t batch_size(const ggml_tensor * op) {
    switch (op->op) {
        case GGML_OP_GET_ROWS: return 0;
        case GGML_OP_MUL_MAT: return op->ne[1];
        case GGML_OP_MUL_MAT_ID:
        case GGML_OP_ROPE:
        case GGML_OP_ROPE_BACK: return op->ne[2];
        default: return ggml_nrows(op);
    }
}

// A backend puts uploads off as long as it may: memory that is overwritten too early shows.
struct Upload {
    ggml_tensor * to;
    const void *  data;
    size_t        offset, size;
};

struct Backend {
    ggml_backend_t      cpu;
    std::vector<Upload> uploads;
};

Backend & context(ggml_backend_t backend) {
    return *(Backend *) backend->context;
}

void set_tensor_async(ggml_backend_t backend, ggml_tensor * to, const void * data, size_t offset, size_t size) {
    context(backend).uploads.push_back({to, data, offset, size});
}

void synchronize(ggml_backend_t backend) {
    for (const Upload & u : context(backend).uploads) {
        ggml_backend_tensor_set(u.to, u.data, u.offset, u.size);
    }
    context(backend).uploads.clear();
}

ggml_status graph_compute(ggml_backend_t backend, ggml_cgraph * graph) {
    synchronize(backend);
    int products[2] = {0, 0};
    for (int i = 0; i < graph->n_nodes; ++i) {
        const ggml_tensor * node = graph->nodes[i];
        if (node->op == GGML_OP_MUL_MAT || node->op == GGML_OP_MUL_MAT_ID) {
            products[batch_size(node) >= LONG_BATCH]++;
        }
    }
    standin.short_products += products[0];
    standin.long_products += products[1];
    standin.nodes += graph->n_nodes;
    standin.graphs++;
    if (std::getenv("STANDIN_LOG")) {
        std::fprintf(stderr, "STANDIN0: %d nodes, %d short products, %d long products\n", graph->n_nodes, products[0], products[1]);
    }
    const Mapped mapped(graph);
    return ggml_backend_graph_compute(context(backend).cpu, graph);
}

void free_backend(ggml_backend_t backend) {
    ggml_backend_free(context(backend).cpu);
    delete &context(backend);
    delete backend;
}

ggml_backend_t init_backend(ggml_backend_dev_t device, const char *) {
    static ggml_guid guid = {'S', 'R', '-', 'H', 'P', 'M', ' ', 's', 't', 'a', 'n', 'd', '-', 'i', 'n', '0'};
    auto *           backend = new ggml_backend{};
    backend->guid                = &guid;
    backend->device              = device;
    backend->context             = new Backend{ggml_backend_dev_init(standin.cpu, nullptr), {}};
    backend->iface.get_name      = [](ggml_backend_t) { return "STANDIN0"; };
    backend->iface.free          = free_backend;
    backend->iface.graph_compute = graph_compute;
    backend->iface.synchronize   = synchronize;
    backend->iface.set_tensor_async = set_tensor_async;
    auto set_threads = (ggml_backend_set_n_threads_t) ggml_backend_reg_get_proc_address(
        ggml_backend_dev_backend_reg(standin.cpu), "ggml_backend_set_n_threads");
    set_threads(context(backend).cpu, 2);
    return backend;
}

// ---- the device -------------------------------------------------------------------------------------

void get_memory(ggml_backend_dev_t, size_t * free, size_t * total) {
    *total = standin.total;
    *free  = standin.total - standin.used;
}

void get_props(ggml_backend_dev_t, ggml_backend_dev_props * props) {
    *props             = {};
    props->name        = "STANDIN0";
    props->description = "stand-in for a GPU";
    props->type        = GGML_BACKEND_DEVICE_TYPE_GPU;
    get_memory(nullptr, &props->memory_free, &props->memory_total);
    props->caps.async        = true;
    props->caps.host_buffer  = true;
    props->caps.mmap_support = true;
}

ggml_backend_buffer_type make_type(const char * (*name)(ggml_backend_buffer_type_t), ggml_backend_buffer_t (*alloc)(ggml_backend_buffer_type_t, size_t),
                                   bool (*is_host)(ggml_backend_buffer_type_t)) {
    ggml_backend_buffer_type type{};
    type.iface.get_name      = name;
    type.iface.alloc_buffer  = alloc;
    type.iface.get_alignment = [](ggml_backend_buffer_type_t t) { return t == &standin.host ? CPU_ALIGNMENT : ALIGNMENT; };
    type.iface.is_host       = is_host;
    type.device              = &standin.device;
    return type;
}

} // namespace

ggml_backend_reg_t stand_in_backend(size_t memory) {
    standin.total  = memory;
    standin.cpu    = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    standin.memory = make_type([](ggml_backend_buffer_type_t) { return "STANDIN0"; }, alloc_buffer,
                               [](ggml_backend_buffer_type_t) { return false; });
    standin.host   = make_type([](ggml_backend_buffer_type_t) { return "STANDIN0_Host"; }, alloc_host_buffer,
                               [](ggml_backend_buffer_type_t) { return true; });

    ggml_backend_device_i & d = standin.device.iface;
    d.get_name             = [](ggml_backend_dev_t) { return "STANDIN0"; };
    d.get_description      = [](ggml_backend_dev_t) { return "stand-in for a GPU"; };
    d.get_memory           = get_memory;
    d.get_type             = [](ggml_backend_dev_t) { return GGML_BACKEND_DEVICE_TYPE_GPU; };
    d.get_props            = get_props;
    d.init_backend         = init_backend;
    d.get_buffer_type      = [](ggml_backend_dev_t) { return &standin.memory; };
    d.get_host_buffer_type = [](ggml_backend_dev_t) { return &standin.host; };
    d.supports_op          = [](ggml_backend_dev_t, const ggml_tensor * op) { return ggml_backend_dev_supports_op(standin.cpu, op); };
    d.supports_buft        = [](ggml_backend_dev_t, ggml_backend_buffer_type_t type) { return type == &standin.memory; };
    d.offload_op           = [](ggml_backend_dev_t, const ggml_tensor * op) { return batch_size(op) >= LONG_BATCH; };
    standin.device.reg     = &standin.reg;

    standin.reg.api_version            = GGML_BACKEND_API_VERSION;
    standin.reg.iface.get_name         = [](ggml_backend_reg_t) { return "STANDIN"; };
    standin.reg.iface.get_device_count = [](ggml_backend_reg_t) { return (size_t) 1; };
    standin.reg.iface.get_device       = [](ggml_backend_reg_t, size_t) { return &standin.device; };
    standin.reg.iface.get_proc_address = [](ggml_backend_reg_t, const char *) -> void * { return nullptr; };
    return &standin.reg;
}

ggml_backend_dev_t stand_in_gpu(size_t memory) {
    ggml_backend_register(stand_in_backend(memory));
    return &standin.device;
}

StandInCounts stand_in_counts() {
    return {standin.long_products, standin.short_products, standin.nodes, standin.graphs};
}
