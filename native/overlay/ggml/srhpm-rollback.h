// SR-HPM: whether recurrent models go back over rejected tokens by choosing among the states kept.
//
// A pass over n tokens keeps the states after each of the last ones, and going back means reading
// another of them next time: nothing is copied and nothing computed again. Upstream has it for some
// architectures and some drafters; the others copy all states before each pass and, after a rejected
// token, put them back and compute the accepted tokens once more.
// SRHPM_ROLLBACK=copy leaves it at that, for what is kept takes memory. SRHPM_ROLLBACK=off also lets the
// states of a pass be copied to where they are kept (srhpm-states.h), which is all upstream's then.
#pragma once

#include <cstdlib>
#include <cstring>

static inline bool srhpm_rollback_is(const char * value) {
    const char * text = std::getenv("SRHPM_ROLLBACK");
    return text && !std::strcmp(text, value);
}

static inline bool srhpm_more_rollback() {
    static const bool on = !srhpm_rollback_is("off") && !srhpm_rollback_is("copy");
    return on;
}

static inline bool srhpm_states_in_place() {
    static const bool on = !srhpm_rollback_is("off");
    return on;
}
