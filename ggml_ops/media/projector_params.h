// How mtmd loads a projector.

#pragma once

#include "dflash.h"
#include "files/projector_check.h"

#include "mtmd.h"

namespace dflash {

// On the first device that the target may use; without one, or unless it is to be offloaded, on the CPU.
// traits: of params.mmproj. Throws status_error.
mtmd_context_params projector_params(
    const dflash_engine_params & params, const projector_traits & traits, const llama_model * target);

}   // namespace dflash
