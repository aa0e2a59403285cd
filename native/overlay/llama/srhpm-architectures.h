// SR-HPM: architectures that can keep the states of the last tokens though upstream does not say so.
#pragma once

#include "srhpm-rollback.h"

// Qwen3-Next's layers are built by the functions that keep states for Qwen 3.5. For one sequence only:
// with three, and the last one's first request before the others', it went on from a wrong state
// (Qwen 3.5 never did); why is not known, so with several slots it copies, as upstream has it.
template <class Arch> bool srhpm_keeps_states(Arch arch) {
    return arch == Arch::LLM_ARCH_QWEN3NEXT && srhpm_more_rollback();
}
