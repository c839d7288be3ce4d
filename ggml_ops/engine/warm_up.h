// The first passes of an engine.

#pragma once

#include "budget/costs.h"
#include "cache/draft_memories.h"
#include "dflash.h"
#include "target/target.h"

#include <string>

namespace dflash {

// Runs one pass of each model, so that a file whose graph cannot be built fails here and not under a request. With
// params.warmup it also measures what passes cost, unless the file `cost_cache` knows from an earlier start, and pads
// the target's passes where that pays. Sequences hold nothing afterwards, but for the drafters' memory of them.
void warm_up(const dflash_engine_params & params, const std::string & cost_cache, target & target,
    draft_memories & drafts, pass_costs & costs);

}   // namespace dflash
