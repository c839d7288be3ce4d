// A slot: one running sequence, its request, its next tree, and what it learned about its drafts. No llama.cpp types.

#pragma once

#include "accept/block_accept.h"
#include "accept/token_probs.h"
#include "accept/verified_tree.h"
#include "accept/walk.h"
#include "base/raw_bytes.h"
#include "draft/budget.h"
#include "draft/calibration.h"
#include "draft/lookup.h"
#include "draft/prediction.h"
#include "draft/tree.h"
#include "engine/pending_taps.h"
#include "dflash.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace dflash {

class sampler;   // accept/sampling.h

// The part of a sequence's memory that cannot go back by itself (a recurrent state, a sliding window), as it was after
// its first `at` tokens. Copies share the bytes.
struct checkpoint {
    int32_t                          at = 0;
    std::shared_ptr<const raw_bytes> state;
};

// Of the n_common tokens that a sequence and a prompt begin with, how many need not be read again: all of them, if the
// sequence can be cut back so far (`reach`: the fewest tokens that it can be cut back to), else those up to a
// checkpoint.
int32_t kept_tokens(int32_t reach, const std::vector<checkpoint> & checkpoints, int32_t n_common);

// What a slot has learned about its drafts.
struct experience {
    value_profile values;   // what its trees were worth, by block length
    calibration   odds;     // the drafter's probabilities against what was accepted
    // how often quotations of the text itself go on, and those of the client's prediction
    quotation_odds quotes      = quotation_odds::of_lookup();
    quotation_odds predictions = quotation_odds::of_prediction();

    // A verified tree: path holds the accepted nodes, `quoted` is the tree's quotation.
    void observe(const tree & verified, const std::vector<int32_t> & path, const quotation & quoted);
    // Where a new answer may start: what the last one learned counts as few observations.
    void fade();
};

// Another slot that reads the beginning of a prompt: its tokens are shared once it has read them.
struct leader_slot {
    int32_t id          = -1;   // -1: nobody
    int64_t t_submit_us = 0;    // of its request
    int32_t n_tokens    = 0;    // that will be shared
};

struct slot {
    int32_t id    = 0;
    int32_t state = DFLASH_IDLE;

    // what the target's memory holds for this sequence
    std::vector<int32_t>    tokens;
    std::vector<checkpoint> checkpoints;     // in order
    int32_t                 n_asked = 0;     // of the tokens, those of the last prompt; the rest is its answer
    raw_bytes               aside;           // while it is not empty, the memory's part is here: others needed the room
    int64_t                 t_used_us = 0;   // when the last request ended
    // the request
    std::vector<int32_t>             prompt;
    int32_t                          save_at = 0;   // make a checkpoint when so much of the prompt is read, 0: never
    leader_slot                      leader;        // who reads the beginning of this prompt for its own request
    std::shared_ptr<dflash::sampler> sampler;       // never shared; a unique_ptr would need llama.cpp's types here
    int32_t                          n_predict     = -1;
    int32_t                          budget        = 0;       // effective: 0 auto, 1 plain, N fixed
    int32_t                          width         = 1;       // children per node: 1 chains
    int32_t                          depth         = 0;       // most tokens on a path that the drafter proposes
    int32_t                          quote_depth   = 0;       // most tokens of a quotation
    bool                             lookup        = true;    // quotations of the text itself
    bool                             block         = false;   // block verification instead of sample-and-match
    bool                             greedy        = false;   // temperature 0
    int32_t                          n_probs       = 0;       // likeliest tokens to tell of beside each token, 0: none
    bool                             post_probs    = false;   // by the probabilities after sampling
    int32_t                          probs_from    = 0;       // first prompt token to tell of, 0: none
    bool                             return_drafts = false;   // tell of each verified tree
    bool                             caches        = true;    // later requests may have what this one leaves
    // the next pass
    int32_t       anchor = -1;
    tree          next;             // node 0 is the anchor
    dflash::draft draft;            // what `next` grew from
    drawn_chain   drawn;            // block verification: what `next` was drawn as
    quotation     quoted;           // of the text itself, or of the prediction
    int32_t       n_denoised = 0;   // block length of the drafter pass behind `next`, 0: none
    double        draft_ms   = 0;   // that pass
    const char *  reason     = "";
    // this pass
    int32_t     first_row = 0;       // first row of the slot in the batch
    int32_t     n_rows    = 0;       // a prompt chunk's or a tree's
    bool        reads     = false;   // a prompt chunk
    bool        samples   = false;   // a tree, or the chunk that holds the prompt's last row
    bool        open      = false;   // its rows are a tree to the target's memory, which waits for the path
    walk_result walked;
    // drafting
    pending_taps taps;
    experience   learned;
    text_index   text;        // of `tokens`
    prediction   predicted;   // of the answer, by the client
    // result of this step
    std::vector<int32_t> emitted;
    token_probs          probs;   // of a chunk of the prompt, then of the emitted tokens
    int32_t              n_prompt_probs = 0;
    verified_tree        verified;   // if the request wants to know
    dflash_update        update = {};
    std::string          error;
    bool                 ended = false;   // without a row in this pass

    dflash_slot_stats stats       = {};
    int64_t           t_submit_us = 0, t_start_us = 0, t_first_us = 0;

    bool    running() const { return state == DFLASH_READING || state == DFLASH_WRITING; }
    bool    is_aside() const { return !aside.empty(); }
    bool    reading() const { return state == DFLASH_READING && !is_aside(); }
    bool    writing() const { return state == DFLASH_WRITING && !is_aside(); }
    bool    failed() const { return state == DFLASH_FAILED || state == DFLASH_REFUSED; }
    bool    follows() const { return leader.id >= 0; }
    int32_t n_past() const { return (int32_t) tokens.size(); }
    int32_t n_left() const { return n_predict < 0 ? INT32_MAX : n_predict - stats.n_generated; }

    // Whether the row of prompt[i] must have logits, beside the one that is sampled from: it predicts the next token.
    bool tells_after(int32_t i) const {
        return probs_from > 0 && i + 1 >= probs_from && i + 1 < (int32_t) prompt.size();
    }

    void begin_pass();                 // nothing is planned or emitted yet
    void begin_tree(int32_t token);    // the next tree is this anchor alone
    void clear_tree();                 // there is no next tree
    void count_walk(const tree & t);   // statistics of a tree that was walked
};

}   // namespace dflash
