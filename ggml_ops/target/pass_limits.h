// What bounds passes and trees: the target sets it at load.

#pragma once

#include "dflash.h"

#include <cstdint>
#include <optional>

namespace dflash {

inline constexpr int32_t MAX_DRAFTERS = 2;   // one with layers of its own, and MTP layers

struct pass_limits {
    // positions of all slots together; nothing: each has its own
    std::optional<int32_t> n_cells;

    int32_t n_ctx_slot    = 0;                      // positions of one slot
    int32_t n_rows        = 0;                      // rows of a pass
    int32_t n_prompt_rows = 0;                      // of those, prompts' rows
    int32_t n_outputs     = 0;                      // rows of a pass that have logits
    int32_t n_draft_max   = 0;                      // tokens on a path that the drafter proposes
    int32_t n_quote_max   = DFLASH_MAX_NODES - 1;   // tokens of a quotation
    int32_t n_nodes       = DFLASH_MAX_NODES;       // nodes of one tree
    int32_t max_length    = 0;                      // of drafts, with the anchor; 0: there is no drafter
    bool    equal_trees   = false;                  // trees of unlike sizes are passes of their own (delta-net layers)
    bool    splits_trees  = false;                  // trees of unlike sizes are several passes of llama.cpp
};

}   // namespace dflash
