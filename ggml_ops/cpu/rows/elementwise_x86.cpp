// Row steps for AVX-512 and for AVX2, chosen at run time.

#include "ggml.h"
#include "cpu/rows/elementwise.h"
#include "cpu/isa/vectors.h"

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))

#include "cpu/isa/features_x86.h"

#include <immintrin.h>

#include <cmath>

namespace dflash {

namespace {

namespace avx512 {
#include "cpu/isa/vectors_avx512.h"
#include "cpu/rows/elementwise_tile.h"
#undef SIMD
#undef SIMD_INLINE
}   // namespace avx512

namespace avx2 {
#include "cpu/isa/vectors_avx2.h"
#include "cpu/rows/elementwise_tile.h"
#undef SIMD
#undef SIMD_INLINE
}   // namespace avx2

}   // namespace

const row_steps * row_steps_here() {
    static const row_steps wide   = { avx512::add, avx512::norm, avx512::turn },
                           narrow = { avx2::add, avx2::norm, avx2::turn };
    return has_avx512() ? &wide : has_avx2() ? &narrow : nullptr;
}

}   // namespace dflash

#elif !defined(__aarch64__)

namespace dflash {
const row_steps * row_steps_here() { return nullptr; }
}   // namespace dflash

#endif
