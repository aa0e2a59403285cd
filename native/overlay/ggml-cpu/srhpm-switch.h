// SR-HPM: whether our kernels run.
#pragma once

// Not with SRHPM_KERNELS=off, and not on machines whose instructions the kernels have no form for.
// Says so on stderr, once, where that was not asked for.
bool srhpm_kernels_on();
