// Attention tiles for NEON.

#if defined(__aarch64__) && (defined(__GNUC__) || defined(__clang__))

#include "attention.h"
#include "simd.h"

#include <arm_neon.h>

#include <cmath>
#include <cstring>

namespace dflash {

namespace {
namespace neon {
#include "simd_neon.h"
#include "attention_steps.h"
#include "attention_tile.h"
}
}

const attention_tile * const * attention_tiles() {
    static const attention_tile tile = { neon::BLOCK, neon::run };
    static const attention_tile * const tiles[] = { &tile, nullptr };
    return tiles;
}

}  // namespace dflash

#endif
