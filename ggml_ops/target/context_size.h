// How many tokens of context there are: what was asked for, or what the model was trained with and memory allows.

#pragma once

#include "dflash.h"

#include <cstdint>

namespace dflash {

class model_pair;

struct context_size {
    uint32_t     n_ctx;        // of all slots
    int32_t      n_ctx_slot;   // positions of one slot
    const char * limit;        // what decided: "given", "training" or "memory"
};

// Throws status_error where a slot's part is too small.
context_size choose_context_size(const dflash_engine_params & params, const model_pair & models);

}   // namespace dflash
