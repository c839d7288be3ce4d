// Features of the x86-64 CPU at run time, named as in the kernels' function attributes.

#pragma once

#include <cpuid.h>

namespace dflash {

inline bool has_avx2() {
    static const bool yes =
        __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    return yes;
}

inline bool has_avx512() {
    static const bool yes = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                            __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    return yes;
}

inline bool has_vnni() {
    static const bool yes = has_avx512() && __builtin_cpu_supports("avx512vnni");
    return yes;
}

// VNNI without AVX-512 (VEX). gcc knows the name only from version 11 on, so this reads CPUID leaf 7.1.
inline bool has_avx_vnni() {
    static const bool yes = [] {
        unsigned a, b, c, d;
        return has_avx2() && __get_cpuid_count(7, 0, &a, &b, &c, &d) && a >= 1 &&
               __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 4);
    }();
    return yes;
}

}   // namespace dflash
