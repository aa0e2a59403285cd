#include "srhpm-hang-up.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <mutex>

namespace srhpm {

namespace {

std::mutex            mutex;
std::set<int>         gone;         // cancelled tasks, under the mutex
bool                  all = false;  // ... or every task is
std::atomic<uint64_t> n_events{ 0 };

// Of the main loop.
std::set<llama_context *> moves; // their keys move at the next decoding
bool                      ended = false;

bool late() {
    static const bool late = [] {
        const char * asked = std::getenv("SRHPM_HANG_UP");
        return asked != nullptr && std::strcmp(asked, "late") == 0;
    }();
    return late;
}

} // namespace

void hung_up(int id_task) {
    const std::lock_guard<std::mutex> lock(mutex);
    gone.insert(id_task);
    n_events++;
}

void nobody_waits() {
    const std::lock_guard<std::mutex> lock(mutex);
    all = true;
    n_events++;
}

void shifted(llama_context * target, llama_context * drafter) {
    moves.insert(target);
    moves.insert(drafter);
}

void Watch::begin(const std::set<int> & running, bool prompt, size_t n_slots) {
    ended = false;
    if (!ctx) {
        return; // a drafter without a model
    }
    const bool moving = moves.erase(ctx) > 0;
    {
        const std::lock_guard<std::mutex> lock(mutex);
        for (auto id = gone.begin(); id != gone.end();) {
            id = running.count(*id) ? std::next(id) : gone.erase(id);
        }
    }
    // Passes that only generate are short. With several sequences in a batch recurrent states change
    // places, those of resting slots too, layer by layer.
    const llama_model * model     = llama_get_model(ctx);
    const bool          recurrent = llama_model_is_recurrent(model) || llama_model_is_hybrid(model);
    on = prompt && !late() && !moving && !tasks.empty() && !(recurrent && n_slots > 1);
    if (on) {
        llama_set_abort_callback(ctx, all_gone, this);
    }
}

Watch::~Watch() {
    if (on) {
        llama_set_abort_callback(ctx, nullptr, nullptr);
    }
}

// Asked after each operation, by the thread that decodes.
bool Watch::all_gone(void * data) {
    auto &         watch  = *static_cast<Watch *>(data);
    const uint64_t events = n_events;
    if (events != watch.seen) {
        watch.seen = events;
        const std::lock_guard<std::mutex> lock(mutex);
        ended = all || std::all_of(watch.tasks.begin(), watch.tasks.end(), [](int id) { return gone.count(id) > 0; });
    }
    return ended;
}

bool ended_early() {
    const bool was = ended;
    ended          = false;
    return was;
}

bool cut(llama_context * ctx, int32_t seq, int32_t pos) {
    llama_memory_t memory = llama_get_memory(ctx);
    return memory && llama_memory_seq_rm(memory, seq, pos, -1) && llama_memory_seq_pos_max(memory, seq) == pos - 1;
}

bool cut_whole(llama_context * ctx, int32_t seq, int32_t pos) {
    return cut(ctx, seq, pos) && llama_memory_seq_pos_min(llama_get_memory(ctx), seq) == 0;
}

} // namespace srhpm
