// SR-HPM: the tokens of one verify pass as one event of a native stream, where SRHPM_EVENTS=pass.
//
// Ollama hands each event on through a channel without room. When its client hangs up while an event
// is written and the next one waits already, nobody takes that one, ever, and the model's slot in
// Ollama is gone. Upstream's tokens come one by one and leave no event waiting; those of a pass come
// at once, so they go out as one. Only the server's main loop calls this.
#pragma once

#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <utility>

namespace srhpm {

inline bool events_by_pass() {
    static const bool by_pass = [] {
        const char * value = std::getenv("SRHPM_EVENTS");
        return value != nullptr && std::string(value) == "pass";
    }();
    return by_pass;
}

// Templates, as this lies where upstream's server is not known.

// Events held back, by slot.
template <typename Partial> std::map<int, std::unique_ptr<Partial>> & held_events() {
    static std::map<int, std::unique_ptr<Partial>> held;
    return held;
}

// What is held back of a slot's present task; what was of one that was cancelled is dropped.
template <typename Partial, typename Slot> std::unique_ptr<Partial> take_held(const Slot & slot) {
    std::unique_ptr<Partial> held = std::move(held_events<Partial>()[slot.id]);
    return held && held->id == slot.task->id ? std::move(held) : nullptr;
}

// Whether the event waits for the rest of its pass; else it carries what waited for it.
template <typename Partial, typename Slot>
bool held_back(const Slot & slot, std::unique_ptr<Partial> & event) {
    // Events in other APIs' forms are made with a state, those with probabilities have one token's.
    if (!events_by_pass() || event->res_type != 0 || event->is_progress || event->is_begin ||
        slot.task->params.sampling.n_probs > 0) {
        return false;
    }
    if (auto held = take_held<Partial>(slot)) {
        event->content.insert(0, held->content);
        event->tokens.insert(event->tokens.begin(), held->tokens.begin(), held->tokens.end());
    }
    if (slot.stats.srhpm.ahead == 0) {
        return false;
    }
    held_events<Partial>()[slot.id] = std::move(event);
    return true;
}

} // namespace srhpm
