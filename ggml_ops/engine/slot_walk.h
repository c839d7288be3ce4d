// Samples along a slot's rows after a target pass, and collects the probabilities that its request asked for.

#pragma once

#include "engine/slot.h"

#include "llama.h"

namespace dflash {

// Samples with the slot's sampler from the anchor's row down, as far as its tree carries the samples. The last row of a
// prompt is a tree of one node. Throws where the sampler fails.
walk_result walk_slot(slot & s, llama_context * ctx);

// Adds the probabilities of the prompt's tokens that follow the rows of this chunk, where the request wants them.
void add_prompt_probs(slot & s, llama_context * ctx);

}   // namespace dflash
