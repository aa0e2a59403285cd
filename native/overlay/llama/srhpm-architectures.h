// SR-HPM: architectures that can keep the states of the last tokens though upstream does not say so.
#pragma once

#include "srhpm-rollback.h"

// Qwen3-Next's layers are built by the functions that keep states for Qwen 3.5.
template <class Arch> bool srhpm_keeps_states(Arch arch) {
    return arch == Arch::LLM_ARCH_QWEN3NEXT && srhpm_more_rollback();
}
