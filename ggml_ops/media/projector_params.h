// How mtmd loads a projector, to use it or to ask what it takes.

#pragma once

#include "dflash.h"

#include "llama.h"
#include "mtmd.h"

namespace dflash {

// On the first device that the target may use; on the CPU if there is none, or if the projector is not to be offloaded.
// From then on mtmd logs as llama.cpp does.
mtmd_context_params projector_params(const dflash_engine_params & params, const llama_model * target);

}   // namespace dflash
