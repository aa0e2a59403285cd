#include "srhpm-switch.h"

#include "kernels.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

bool wanted() {
    const char * text = std::getenv("SRHPM_KERNELS");
    if (!text || !*text || !std::strcmp(text, "speed")) {
        return true;
    }
    if (std::strcmp(text, "off") != 0) {
        std::fprintf(stderr, "srhpm: SRHPM_KERNELS=%s is not known, it can be off or speed; kernels are off\n", text);
    }
    return false;
}

bool possible() {
    if (srhpm::chosen_kernels()) {
        return true;
    }
    const char * name = std::getenv("SRHPM_ISA");
    const bool   said = name && *name;
    std::fprintf(stderr, "srhpm: no kernels for this processor%s%s; upstream's are used\n", said ? " and SRHPM_ISA=" : "", said ? name : "");
    return false;
}

} // namespace

bool srhpm_kernels_on() {
    static const bool on = wanted() && possible();
    return on;
}
