// SR-HPM: adaptive drafting. Always propose n_min tokens, go on to n_max only while the drafter is
// confident.
//
// Verifying a few tokens costs about as much as one, so a drafter's doubt about the first tokens is
// no reason to stop; beyond them each token costs a drafter pass and verify time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

using llama_token = int32_t; // as llama.h has it

namespace srhpm {

struct draft_policy {
    int32_t n_min       = 0;     // tokens proposed whatever their probability; 0: upstream's behaviour
    bool    two_lengths = false; // propose n_min or n_max tokens, nothing between
    int32_t pass_tokens = 0;     // of all slots in a verify pass; 0: as many as they propose
};

// The process-wide policy, set by flags or environment before a model is loaded.
draft_policy & policy();

// Asked when the drafter's probability fell below p_min after `n_drafted` tokens of this draft:
// may the draft end here?
bool may_stop(size_t n_drafted);

// The most that a slot may draft, and `room & n` the least of that and n.
struct draft_room {
    int32_t most;
};
inline int32_t operator&(draft_room room, int32_t n) {
    return n < room.most ? n : room.most;
}

// The room of each of `n_slots` that decode at once; where there is none, `off` says why.
draft_room room_beside(int64_t n_slots, const char *& off);

} // namespace srhpm
