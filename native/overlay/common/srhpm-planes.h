// SR-HPM: how many states of a recurrent model are kept for going back over rejected tokens.
#pragma once

#include <cstdint>

struct common_params_speculative;

namespace srhpm {

// States kept per slot beside the current one: as many as a draft may be long, whatever kind of drafter
// it comes from. Each costs the memory of a whole state, so there are no more than MOST_PLANES: a draft
// model's longer drafts are preceded by a copy, as upstream does it for all of them; n-gram tables
// always propose all they may, so with longer ones none is kept.
// `upstream` is what upstream would keep; where that is not nothing, it stays.
constexpr uint32_t MOST_PLANES = 8;

uint32_t planes(const common_params_speculative & speculation, uint32_t upstream);

} // namespace srhpm
