// How mtmd loads a projector.

#pragma once

#include "dflash.h"
#include "files/projector_check.h"

#include "mtmd.h"

namespace dflash {

// Whether it is computed on the first device of this machine that the target may use: it is to be offloaded, and there
// is one. Else the CPU computes it.
bool is_offloaded(const dflash_engine_params & params, const llama_model * target);

// The target's parameters for its projector. Where the target's devices have no flash attention for its K and V, `auto`
// is decided anew: the projector has other ones.
dflash_engine_params params_beside(const dflash_engine_params & target, const dflash_engine_params & given);

// traits: of params.mmproj. Throws status_error.
mtmd_context_params projector_params(
    const dflash_engine_params & params, const projector_traits & traits, const llama_model * target);

}   // namespace dflash
