// Row steps for NEON.

#if defined(__aarch64__) && (defined(__GNUC__) || defined(__clang__))

#include "ggml.h"
#include "cpu/rows/elementwise.h"
#include "cpu/isa/vectors.h"

#include <arm_neon.h>

#include <cmath>

namespace dflash {

namespace {
namespace neon {
#include "cpu/isa/vectors_neon.h"
#include "cpu/rows/elementwise_tile.h"
}   // namespace neon
}   // namespace

const row_steps * row_steps_here() {
    static const row_steps steps = { neon::add, neon::norm, neon::turn };
    return &steps;
}

}   // namespace dflash

#endif
