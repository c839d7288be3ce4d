// Products with float weights for AVX-512 and for AVX2, chosen at run time.

#include "dense.h"
#include "simd.h"

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))

#include <immintrin.h>

#include <cmath>

namespace dflash {

namespace {

namespace avx512 {
#include "simd_avx512.h"
#include "dense_tile.h"
#undef SIMD
#undef SIMD_INLINE
}

namespace avx2 {
#include "simd_avx2.h"
#include "dense_tile.h"
#undef SIMD
#undef SIMD_INLINE
}

}  // namespace

const dense_kernel * dense_kernels() {
    static const bool is_wide   = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    static const bool is_narrow = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    static const dense_kernel kernels[] = { is_wide ? avx512::run : is_narrow ? avx2::run : nullptr, is_wide ? avx2::run : nullptr, nullptr };
    return kernels;
}

}  // namespace dflash

#elif !defined(__aarch64__)

namespace dflash {
const dense_kernel * dense_kernels() {
    static const dense_kernel none[] = { nullptr };
    return none;
}
}

#endif
