// Attention tiles for NEON.

#if defined(__aarch64__) && (defined(__GNUC__) || defined(__clang__))

#include "cpu/attention/attention.h"
#include "cpu/isa/vectors.h"

#include <arm_neon.h>

#include <cmath>
#include <cstring>

namespace dflash {

namespace {
namespace neon {
#include "cpu/isa/vectors_neon.h"
#include "cpu/attention/attention_steps.h"
#include "cpu/attention/attention_tile.h"
}   // namespace neon
}   // namespace

const attention_tile * const * attention_tiles() {
    static const attention_tile         tile    = { neon::BLOCK, neon::run };
    static const attention_tile * const tiles[] = { &tile, nullptr };
    return tiles;
}

}   // namespace dflash

#endif
