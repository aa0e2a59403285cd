// SR-HPM: which instruction sets this machine has.

#include "kernels.h"

#include <cstdlib>
#include <cstring>

#if defined(__x86_64__) || defined(_M_X64)
#define SRHPM_X86 1
#if defined(_MSC_VER)
#include <intrin.h>
#else
#include <cpuid.h>
#endif
#elif defined(SRHPM_HAS_NEON)
#if defined(__linux__)
#include <sys/auxv.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#elif defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#endif
#endif

namespace srhpm {

namespace {

#if defined(SRHPM_X86)
struct Registers {
    uint32_t a, b, c, d;
};

Registers cpuid(uint32_t leaf, uint32_t sub) {
    Registers r{};
#if defined(_MSC_VER)
    int v[4];
    __cpuidex(v, (int) leaf, (int) sub);
    r = {(uint32_t) v[0], (uint32_t) v[1], (uint32_t) v[2], (uint32_t) v[3]};
#else
    __cpuid_count(leaf, sub, r.a, r.b, r.c, r.d);
#endif
    return r;
}

// Register states that the operating system saves.
uint64_t saved_states() {
#if defined(_MSC_VER)
    return _xgetbv(0);
#else
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t) high << 32 | low;
#endif
}

bool bit(uint32_t word, int n) {
    return word >> n & 1;
}

struct X86 {
    bool avx2 = false, avxvnni = false, avx512vnni = false;

    X86() {
        const uint32_t leaves = cpuid(0, 0).a;
        const auto     one    = cpuid(1, 0);
        if (leaves < 7 || !bit(one.c, 27)) { // xgetbv
            return;
        }
        const uint64_t states = saved_states();
        const auto     seven  = cpuid(7, 0);
        const bool     ymm    = (states & 0x06) == 0x06;
        const bool     zmm    = (states & 0xe6) == 0xe6;
        avx2 = ymm && bit(seven.b, 5) && bit(one.c, 12) /* fma */ && bit(one.c, 29) /* f16c */;
        avxvnni    = avx2 && seven.a >= 1 && bit(cpuid(7, 1).a, 4);
        avx512vnni = avx2 && zmm && bit(seven.b, 16) /* f */ && bit(seven.b, 30) /* bw */ &&
                     bit(seven.b, 31) /* vl */ && bit(seven.b, 17) /* dq */ && bit(seven.c, 11);
    }
};
#elif defined(SRHPM_HAS_NEON)
// Whether the processor has SDOT, as the system tells it: reading its own registers is reserved.
bool has_dot_product() {
#if defined(__linux__)
    return getauxval(AT_HWCAP) >> 20 & 1; // HWCAP_ASIMDDP, which old headers lack
#elif defined(__APPLE__)
    int    has  = 0;
    size_t size = sizeof(has);
    return sysctlbyname("hw.optional.arm.FEAT_DotProd", &has, &size, nullptr, 0) == 0 && has;
#elif defined(_WIN32)
    return IsProcessorFeaturePresent(43); // PF_ARM_V82_DP_INSTRUCTIONS_AVAILABLE
#else
    return false;
#endif
}
#endif

} // namespace

const Kernels * const * usable_kernels() {
    struct List {
        const Kernels * entries[6] = {};
        int             n          = 0;

        void add(const Kernels * kernels) {
            if (kernels) {
                entries[n++] = kernels;
            }
        }

        List() {
#if defined(SRHPM_X86)
            const X86 machine;
            if (machine.avx512vnni) {
                add(kernels_avx512vnni());
            }
#if defined(SRHPM_HAS_AVXVNNI)
            if (machine.avxvnni) {
                add(kernels_avxvnni());
            }
#endif
            if (machine.avx2) {
                add(kernels_avx2());
            }
#elif defined(SRHPM_HAS_NEON)
            if (has_dot_product()) {
                add(kernels_neon());
            }
#endif
            add(kernels_portable());
        }
    };
    static const List list;
    return list.entries;
}

const Kernels * chosen_kernels() {
    static const Kernels * chosen = []() -> const Kernels * {
        const Kernels * const * usable = usable_kernels();
        const char *            name   = std::getenv("SRHPM_ISA");
        if (!name || !*name) {
            // upstream's own kernels are faster than generic code
            return usable[0] == kernels_portable() ? nullptr : usable[0];
        }
        for (; *usable; ++usable) {
            if (std::strcmp((*usable)->isa, name) == 0) {
                return *usable;
            }
        }
        return nullptr;
    }();
    return chosen;
}

} // namespace srhpm
