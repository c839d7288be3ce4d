// Products with float weights for AVX-512 and for AVX2, chosen at run time.

#include "cpu/gemm/float_gemm.h"
#include "cpu/isa/vectors.h"

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))

#include "cpu/isa/features_x86.h"

#include <immintrin.h>

#include <cmath>

namespace dflash {

namespace {

namespace avx512 {
#include "cpu/isa/vectors_avx512.h"
#include "cpu/gemm/float_tile.h"
#undef SIMD
#undef SIMD_INLINE
}   // namespace avx512

namespace avx2 {
#include "cpu/isa/vectors_avx2.h"
#include "cpu/gemm/float_tile.h"
#undef SIMD
#undef SIMD_INLINE
}   // namespace avx2

}   // namespace

const dense_kernel * dense_kernels() {
    static const dense_kernel kernels[] = { has_avx512() ? avx512::run
                                            : has_avx2() ? avx2::run
                                                         : nullptr,
        has_avx512() ? avx2::run : nullptr, nullptr };
    return kernels;
}

}   // namespace dflash

#elif !defined(__aarch64__)

namespace dflash {
const dense_kernel * dense_kernels() {
    static const dense_kernel none[] = { nullptr };
    return none;
}
}   // namespace dflash

#endif
