// What the vector headers share. vectors_<set>.h is included into a namespace of each set (and of each variant of it,
// see isa/kernels.h), followed by the kernel templates. It defines the vectors, `simd`, and `dot_products<R>`, as
// vectors_interface.h lists them. Before that, isa/<set>.cpp defines ISA_ATTRIBUTE: the function attribute that lets
// the compiler use the set.

#pragma once

#include "cpu/gemm/weight_types.h"

#if defined(__x86_64__)
#include "cpu/isa/features_x86.h"
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"   // in gcc's own intrinsics (bug 105593)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#else
#include "cpu/isa/features_arm.h"

#include <arm_neon.h>
#endif

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

#define ISA_FUNCTION      ISA_ATTRIBUTE static
#define ISA_INLINE        ISA_ATTRIBUTE __attribute__((always_inline)) static inline
#define ISA_INLINE_MEMBER ISA_ATTRIBUTE __attribute__((always_inline)) inline

// exp(x) = 2^n e^r, |r| <= ln 2 / 2, with a polynomial fitted for minimal relative error (1.4 units of 2^-24)
#define DFLASH_EXP_POLYNOMIAL(fma, set1, r)                                                               \
    fma(fma(fma(fma(fma(fma(set1(0x1.6a2352p-10f), r, set1(0x1.123a6cp-7f)), r, set1(0x1.5558f4p-5f)), r, \
                    set1(0x1.555490p-3f)),                                                                \
                r, set1(0x1.fffffcp-2f)),                                                                 \
            r, set1(1.0f)),                                                                               \
        r, set1(1.0f))
