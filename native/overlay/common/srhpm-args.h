// SR-HPM: command-line flags of the patched server, each with an environment variable, since hosts
// pass no foreign flags.
#pragma once

#include "arg.h"

#include <functional>

namespace srhpm {

void add_args(const std::function<void(common_arg)> & add);

} // namespace srhpm
