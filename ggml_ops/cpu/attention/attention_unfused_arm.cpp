// Attention without flash attention for NEON.

#if defined(__aarch64__) && (defined(__GNUC__) || defined(__clang__))

#include "cpu/attention/attention_unfused.h"
#include "cpu/isa/vectors.h"

#include <arm_neon.h>

#include <cmath>
#include <cstring>

namespace dflash {

namespace {
namespace neon {
#include "cpu/isa/vectors_neon.h"
#include "cpu/attention/attention_steps.h"
#include "cpu/attention/attention_unfused_tile.h"
}   // namespace neon
}   // namespace

const unfused_kernels * const * unfused_kernel_sets() {
    static const unfused_kernels         set = { neon::BLOCK, neon::turn, neon::scores, neon::softmax, neon::values };
    static const unfused_kernels * const sets[] = { &set, nullptr };
    return sets;
}

}   // namespace dflash

#endif
