// A line for hosts that show their users why a model did not load and look for it in a form of their own.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace srhpm {

// What goes before the line is in SRHPM_STARTUP_ERROR; without it nothing is printed. The reason stands in
// the log above and in `srhpm-plugin status`; what the user needs to know is what to do.
inline void startup_failed() {
    const char * prefix = std::getenv("SRHPM_STARTUP_ERROR");
    if (prefix && *prefix) {
        std::fprintf(stderr, "%s{\"message\":\"SR-HPM's server could not load this model. Load it again: the server of "
                             "the app itself takes it then.\"}\n", prefix);
        std::fflush(stderr);
    }
}

} // namespace srhpm
