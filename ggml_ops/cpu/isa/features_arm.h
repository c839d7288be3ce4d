// Features of the 64-bit ARM CPU at run time, beyond NEON.

#pragma once

#if defined(__linux__)
#include <sys/auxv.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace dflash {

// bit: of the kernel's AT_HWCAP or AT_HWCAP2; name: Apple's.
inline bool has_arm_feature(
    [[maybe_unused]] unsigned long which, [[maybe_unused]] int bit, [[maybe_unused]] const char * name) {
#if defined(__linux__)
    return getauxval(which) >> bit & 1;
#elif defined(__APPLE__)
    int    yes  = 0;
    size_t size = sizeof(yes);
    return sysctlbyname(name, &yes, &size, nullptr, 0) == 0 && yes;
#else
    return false;
#endif
}

inline bool has_dotprod() {
    static const bool yes = has_arm_feature(16, 20, "hw.optional.arm.FEAT_DotProd");   // AT_HWCAP, ASIMDDP
    return yes;
}

inline bool has_i8mm() {
    static const bool yes = has_dotprod() && has_arm_feature(26, 13, "hw.optional.arm.FEAT_I8MM");   // AT_HWCAP2, I8MM
    return yes;
}

}   // namespace dflash
