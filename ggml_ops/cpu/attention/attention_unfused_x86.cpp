// Attention without flash attention for AVX-512 and for AVX2, chosen at run time.

#include "cpu/attention/attention_unfused.h"
#include "cpu/isa/vectors.h"

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))

#include "cpu/isa/features_x86.h"

#include <immintrin.h>

#include <cmath>
#include <cstring>

namespace dflash {

namespace {

namespace avx512 {
#include "cpu/isa/vectors_avx512.h"
#include "cpu/attention/attention_steps.h"
#include "cpu/attention/attention_unfused_tile.h"
#undef SIMD
#undef SIMD_INLINE
}   // namespace avx512

namespace avx2 {
#include "cpu/isa/vectors_avx2.h"
#include "cpu/attention/attention_steps.h"
#include "cpu/attention/attention_unfused_tile.h"
#undef SIMD
#undef SIMD_INLINE
}   // namespace avx2

}   // namespace

const unfused_kernels * const * unfused_kernel_sets() {
    static const unfused_kernels wide   = { avx512::BLOCK, avx512::turn, avx512::scores, avx512::softmax,
          avx512::values },
                                 narrow = { avx2::BLOCK, avx2::turn, avx2::scores, avx2::softmax, avx2::values };
    static const unfused_kernels * const sets[] = { has_avx512() ? &wide
                                                    : has_avx2() ? &narrow
                                                                 : nullptr,
        has_avx512() ? &narrow : nullptr, nullptr };
    return sets;
}

}   // namespace dflash

#elif !defined(__aarch64__)

namespace dflash {
const unfused_kernels * const * unfused_kernel_sets() {
    static const unfused_kernels * const none[] = { nullptr };
    return none;
}
}   // namespace dflash

#endif
