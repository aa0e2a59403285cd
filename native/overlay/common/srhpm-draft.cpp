#include "srhpm-draft.h"

#include <limits>

namespace srhpm {

draft_policy & policy() {
    static draft_policy instance;
    return instance;
}

bool may_stop(size_t n_drafted) {
    const auto & p = policy();
    if (p.n_min <= 0) {
        return true;
    }
    const auto n_min = (size_t) p.n_min;
    return p.two_lengths ? n_drafted == n_min : n_drafted >= n_min;
}

draft_room room_beside(int64_t n_slots, const char *& off) {
    const int32_t tokens = policy().pass_tokens;
    if (tokens <= 0 || n_slots <= 1) {
        return {std::numeric_limits<int32_t>::max()};
    }
    auto most = (int32_t) ((tokens + n_slots - 1) / n_slots - 1); // three slots may exceed a limit of 8 by one
    if (most < 2) { // one token is not worth the drafter's pass (docs/scale.md)
        most = 0;
        off = "the tokens of other requests fill the passes";
    }
    return {most};
}

} // namespace srhpm
