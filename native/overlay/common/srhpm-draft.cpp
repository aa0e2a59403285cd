#include "srhpm-draft.h"

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

} // namespace srhpm
