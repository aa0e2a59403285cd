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
};

// The process-wide policy, set by flags or environment before a model is loaded.
draft_policy & policy();

// Asked when the drafter's probability fell below p_min after `n_drafted` tokens of this draft:
// may the draft end here?
bool may_stop(size_t n_drafted);

} // namespace srhpm
