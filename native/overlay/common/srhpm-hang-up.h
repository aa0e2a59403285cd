// SR-HPM: a prompt that nobody waits for any more is not read on.
//
// Upstream notices a cancelled task between two batches, and one batch of a long prompt can take a CPU
// most of a minute. Here the ids of cancelled tasks are known as soon as the http thread posts them;
// when every task that has tokens in the batch is among them, the computation ends after the operation
// in hand (llama.cpp's abort callback, honoured by CPUs) and those slots go back to what was complete
// before the batch. A batch that somebody waits for is computed as ever.
//
// SRHPM_HANG_UP=late restores upstream's way.
#pragma once

#include "llama.h"

#include <cstdint>
#include <map>
#include <set>

namespace srhpm {

// A task's client has hung up; from any thread.
void hung_up(int id_task);

// The server stops: nobody waits any more.
void nobody_waits();

// Positions of these contexts were shifted. The next decoding moves the keys of all sequences first,
// which must not end half way.
void shifted(llama_context * target, llama_context * drafter);

// While it lives, a decoding in the context ends early once all of the batch's clients have hung up.
class Watch {
public:
    template <class Slots, class Batch>
    Watch(llama_context * ctx, const Slots & slots, const Batch & batch) : ctx(ctx) {
        std::set<int> running;
        for (const auto & slot : slots) {
            if (slot.task) {
                running.insert(slot.task->id);
            }
        }
        bool          prompt = false;
        std::set<int> owners;
        for (const auto & token : batch.tokens) {
            prompt = prompt || token.is_prompt;
            owners.insert(token.id_slot);
        }
        for (const int id : owners) {
            if (slots[id].task) {
                tasks.insert(slots[id].task->id);
            }
        }
        begin(running, prompt, owners.size());
    }
    ~Watch();
    Watch(const Watch &)             = delete;
    Watch & operator=(const Watch &) = delete;

private:
    void        begin(const std::set<int> & running, bool prompt, size_t n_slots);
    static bool all_gone(void * watch);

    llama_context * ctx;
    std::set<int>   tasks;
    bool            on   = false;
    uint64_t        seen = 0; // events at the last look
};

// Whether a watch has ended a decoding since this was last asked.
bool ended_early();

// What a context holds of a sequence ends before `pos`, and the row before is there.
bool cut(llama_context * ctx, int32_t seq, int32_t pos);
// ... and all rows before are.
bool cut_whole(llama_context * ctx, int32_t seq, int32_t pos);

// A slot forgets the last `n` tokens of its prompt, the first of them at `pos`: whatever the caches
// hold of them. Where a cache cannot go back (recurrent states, sliding windows), back to the newest
// checkpoint, else to nothing.
template <class Slot> void put_back(Slot & slot, int32_t pos, int32_t n) {
    const auto clean = [&slot](bool (*cut)(llama_context *, int32_t, int32_t), int32_t to) {
        return cut(slot.ctx_tgt, slot.id, to) && (!slot.ctx_dft || cut(slot.ctx_dft, slot.id, to));
    };
    auto &        prompt = slot.prompt;
    const int32_t n_left = prompt.n_tokens() - n;
    if (n_left > 0 && prompt.tokens.pos_next(n_left) == pos) {
        if (clean(cut_whole, pos)) {
            prompt.tokens.keep_first(n_left);
            return;
        }
        for (auto point = prompt.checkpoints.rbegin(); point != prompt.checkpoints.rend(); ++point) {
            if (point->n_tokens > n_left || point->pos_max >= pos) {
                continue;
            }
            point->load_tgt(slot.ctx_tgt, slot.id, LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY);
            point->load_dft(slot.ctx_dft, slot.id, LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY);
            if (clean(cut, point->pos_max + 1)) {
                prompt.tokens.keep_first(point->n_tokens);
                return;
            }
            break;
        }
    }
    slot.prompt_clear();
}

// All slots of a batch that was ended early are free, and the batch is empty.
template <class Slots, class Batch> void drop(Slots & slots, Batch & batch) {
    struct Part {
        int32_t pos, n;
    };
    std::map<int, Part> parts;
    for (const auto & token : batch.tokens) {
        parts.emplace(token.id_slot, Part{ token.pos[0], 0 }).first->second.n++;
    }
    batch.clear();
    for (const auto & part : parts) {
        auto & slot = slots[part.first];
        if (slot.task) {
            llama_synchronize(slot.ctx_tgt);
            put_back(slot, part.second.pos, part.second.n);
            slot.release();
        }
    }
}

} // namespace srhpm
