// Products with float weights for NEON.

#if defined(__aarch64__) && (defined(__GNUC__) || defined(__clang__))

#include "cpu/gemm/float_gemm.h"
#include "cpu/isa/vectors.h"

#include <arm_neon.h>

#include <cmath>

namespace dflash {

namespace {
namespace neon {
#include "cpu/isa/vectors_neon.h"
#include "cpu/gemm/float_tile.h"
}   // namespace neon
}   // namespace

const dense_kernel * dense_kernels() {
    static const dense_kernel kernels[] = { neon::run, nullptr };
    return kernels;
}

}   // namespace dflash

#endif
