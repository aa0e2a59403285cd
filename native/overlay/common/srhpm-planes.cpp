#include "srhpm-planes.h"

#include "srhpm-rollback.h"

#include "common.h"
#include "speculative.h"

#include <algorithm>

namespace srhpm {

uint32_t planes(const common_params_speculative & speculation, uint32_t upstream) {
    const auto & types = speculation.types;
    const auto   drafts = std::find(types.begin(), types.end(), COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE);
    if (upstream > 0 || !srhpm_more_rollback()) {
        return upstream;
    }
    const uint32_t longest = (uint32_t) common_speculative_n_max(&speculation);
    if (longest <= MOST_PLANES) {
        return longest;
    }
    return drafts != types.end() ? std::min((uint32_t) std::max(speculation.draft.n_max, 0), MOST_PLANES) : 0;
}

} // namespace srhpm
