// Products with float weights for NEON.

#if defined(__aarch64__) && (defined(__GNUC__) || defined(__clang__))

#include "dense.h"
#include "simd.h"

#include <arm_neon.h>

#include <cmath>

namespace dflash {

namespace {
namespace neon {
#include "simd_neon.h"
#include "dense_tile.h"
}
}

const dense_kernel * dense_kernels() {
    static const dense_kernel kernels[] = { neon::run, nullptr };
    return kernels;
}

}  // namespace dflash

#endif
