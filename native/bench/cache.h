// SR-HPM bench: how much the processor's caches hold.
#pragma once

#include <cstdint>

namespace bench {

// Bytes of all third-level caches together; 0 where the system does not say. (sysconf multiplies on
// some processors what the virtual machine does not have.)
int64_t cache_bytes();

} // namespace bench
