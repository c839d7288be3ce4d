// A conversation on the host: what a slot held, whole, so that a slot can hold it again. No llama.cpp types.

#pragma once

#include "base/raw_bytes.h"
#include "draft/ring_copy.h"
#include "cache/sequence.h"
#include "cache/tap_rows.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dflash {

// What a drafter holds of it.
struct draft_copy {
    ring_copy context;
    tap_rows  taps;   // what it has not read yet, on the host

    size_t bytes() const {
        return context.bytes() + taps.data.size() * sizeof(float) + taps.rope.size() * sizeof(rope_position);
    }
};

struct conversation {
    std::vector<int32_t>    tokens;
    int32_t                 reach = 0;   // it can be cut back to this many tokens, or to a checkpoint; never in between
    std::vector<checkpoint> checkpoints;
    int32_t                 n_asked = 0;   // of the tokens, those of the last prompt
    raw_bytes               state;         // the target's memory (llama_state_seq_get_data_ext)
    std::vector<draft_copy> drafts;        // one for each drafter

    size_t  bytes() const;
    int32_t kept(int32_t n_common) const { return kept_tokens(reach, checkpoints, n_common); }
};

}   // namespace dflash
