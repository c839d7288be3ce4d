// Attention tiles for AVX-512 and for AVX2, chosen at run time.

#include "cpu/attention/attention.h"
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
#include "cpu/attention/attention_tile.h"
#undef SIMD
#undef SIMD_INLINE
}   // namespace avx512

namespace avx2 {
#include "cpu/isa/vectors_avx2.h"
#include "cpu/attention/attention_steps.h"
#include "cpu/attention/attention_tile.h"
#undef SIMD
#undef SIMD_INLINE
}   // namespace avx2

}   // namespace

const attention_tile * const * attention_tiles() {
    static const attention_tile         wide = { avx512::BLOCK, avx512::run }, narrow = { avx2::BLOCK, avx2::run };
    static const attention_tile * const tiles[] = { has_avx512() ? &wide
                                                    : has_avx2() ? &narrow
                                                                 : nullptr,
        has_avx512() ? &narrow : nullptr, nullptr };
    return tiles;
}

}   // namespace dflash

#elif !defined(__aarch64__)

namespace dflash {
const attention_tile * const * attention_tiles() {
    static const attention_tile * const none[] = { nullptr };
    return none;
}
}   // namespace dflash

#endif
