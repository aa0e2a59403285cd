// SR-HPM: lines about a drafter's buffers and layers under names of their own. Upstream logs those of
// target and drafter alike; hosts that read sizes off the log keep the last line of a name and then take the
// drafter for the whole model.
#pragma once

#include <string>

namespace srhpm {

// While one lives, what is logged concerns the drafter.
struct DrafterLoads {
    DrafterLoads();
    ~DrafterLoads();
    DrafterLoads(const DrafterLoads &)             = delete;
    DrafterLoads & operator=(const DrafterLoads &) = delete;
};

// The line as it is to be logged when it is one of a drafter's that hosts read; empty for all others.
std::string drafter_line(const char * text);

} // namespace srhpm
