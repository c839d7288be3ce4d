// A sequence: what the target's memory holds of one slot, and what a request wants it to hold. No llama.cpp types.

#pragma once

#include "base/raw_bytes.h"
#include "draft/lookup.h"
#include "media/media_text.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace dflash {

// The part of a sequence's memory that cannot go back by itself (a recurrent state, a sliding window), as it was after
// its first `at` tokens. Copies share the bytes.
struct checkpoint {
    int32_t                          at = 0;
    std::shared_ptr<const raw_bytes> state;
};

size_t bytes_of(const std::vector<checkpoint> & checkpoints);

// Of the n_common tokens that a sequence and a prompt begin with, how many need not be read again: all of them, if the
// sequence can be cut back that far (`reach`: the fewest tokens that it can be cut back to), else those up to a
// checkpoint.
int32_t kept_tokens(int32_t reach, const std::vector<checkpoint> & checkpoints, int32_t n_common);

// Another sequence that reads the beginning of a prompt: it shares its tokens once it has read them.
struct leading_sequence {
    int32_t id             = -1;   // -1: none
    int64_t request_number = 0;    // that it reads for
    int32_t n_tokens       = 0;    // that it will share
};

struct sequence {
    int32_t id = 0;

    // what the memory holds
    std::vector<int32_t>    tokens;
    std::vector<checkpoint> checkpoints;   // in order
    int32_t                 n_asked = 0;   // of the tokens, those of the last prompt; the rest is its answer
    raw_bytes               aside;         // while it is not empty, the memory's part is here: others needed the room
    text_index              text;          // of `tokens`
    media_layout            media;         // of `tokens`, and perhaps of the rest of the prompt

    // the request that runs on it, or the last one
    bool                         running        = false;
    const std::vector<int32_t> * prompt         = nullptr;   // lives as long as the request runs
    int64_t                      request_number = 0;         // counts up
    bool                         caches         = true;      // later requests may have what this one leaves
    int32_t                      save_at        = 0;   // make a checkpoint when so much of the prompt is read, 0: never
    leading_sequence             leader;               // reads the beginning of this prompt for its own request
    int64_t                      t_used_us = 0;        // when the last request ended, or a file was put back

    int32_t n_past() const { return (int32_t) tokens.size(); }
    int32_t position() const { return media.position(n_past()); }   // of the next token
    bool    is_aside() const { return !aside.empty(); }
    bool    follows() const { return leader.id >= 0; }
    // Whether it has yet to read some of its prompt, and has its cells.
    bool reading() const { return running && !is_aside() && n_past() < (int32_t) prompt->size(); }
};

}   // namespace dflash
