// A target pass over rows of one medium.

#pragma once

#include "cache/draft_memories.h"
#include "media/medium.h"
#include "target/target.h"

#include <cstdint>

namespace dflash {

// Rows [from, from + n) of a medium whose first row has position `pos`. rows: all of them, [n_rows, n_embd_inp].
// Returns llama_process()'s code. Their taps can be kept until the next pass.
int process_media(target & target, draft_memories & drafts, int32_t seq, const medium & m, const float * rows,
    int32_t pos, int32_t from, int32_t n);

// How many rows of a medium the next pass may read after the first `from`: all of them, if one pass must read them all.
int32_t media_pass_rows(const pass_limits & limits, const medium & m, int32_t from);

}   // namespace dflash
