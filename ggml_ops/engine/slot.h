// A slot: one running sequence, with its request, its drafts, its part of a pass, and its results. No llama.cpp types.

#pragma once

#include "accept/block_accept.h"
#include "accept/sample_and_match.h"
#include "accept/token_probs.h"
#include "budget/choice.h"
#include "cache/sequence.h"
#include "dflash.h"
#include "draft/calibration.h"
#include "draft/draft_window.h"
#include "draft/quotation.h"
#include "draft/tree_growth.h"
#include "engine/reason.h"
#include "engine/request.h"
#include "engine/verified_tree.h"
#include "target/pass_limits.h"

#include <cstdint>
#include <string>
#include <vector>

namespace dflash {

// What a slot has learned about its drafts.
struct experience {
    // About one of the drafters.
    struct of_drafter {
        value_profile       values;        // what its trees were worth, by block length
        dflash::calibration calibration;   // its probabilities against what was accepted
        draft_window        window;        // how far back its blocks look
    };
    of_drafter   drafters[MAX_DRAFTERS];
    quote_priors quotes;   // how often quotations go on

    // path: the accepted nodes of a tree that grew from this drafter's block.
    void observe(const tree & verified, const std::vector<int32_t> & path, int32_t drafter);
    // Where a new answer may start: what the last one learned counts as few observations.
    void fade();
};

// What the next pass verifies.
struct slot_drafts {
    int32_t        anchor = -1;
    dflash::tree   tree;                                    // node 0 is the anchor
    dflash::draft  block;                                   // the drafter's candidates, from which `tree` grew
    drawn_chain    drawn;                                   // block verification: `tree` as it was drawn
    quotation      quoted;                                  // what followed the same tokens before, or a prediction
    int32_t        drafter    = 0;                          // that made `block`
    int32_t        n_denoised = 0;                          // block length of the drafter pass behind `tree`, 0: none
    double         pass_ms    = 0;                          // of that pass
    dflash::reason reason     = dflash::reason::none_yet;   // of its size

    void clear();                // there is no next tree
    void begin(int32_t token);   // the next tree is this anchor alone
};

// A slot's rows in this pass.
struct slot_pass {
    int32_t        first_row   = 0;         // in the batch
    int32_t        n_rows      = 0;         // a prompt chunk's or a tree's
    bool           reads       = false;     // a prompt chunk
    bool           samples     = false;     // a tree, or the chunk that holds the prompt's last row
    bool           open        = false;     // its rows are a tree to the target's memory, which waits for the path
    bool           reads_media = false;     // a medium's rows are next: read in a pass of their own, or awaited
    const medium * awaits      = nullptr;   // the medium that is not encoded yet; else null
    walk_result    walked;

    // The first row that is sampled from.
    int32_t sampled_row() const { return first_row + (reads ? n_rows - 1 : 0); }
};

// Results of this step.
struct slot_result {
    std::vector<int32_t> emitted;
    token_probs          probs;   // of a chunk of the prompt, then of the emitted tokens
    int32_t              n_prompt_probs = 0;
    verified_tree        verified;   // if the request wants to know
    dflash_update        update = {};
    std::string          error;
    bool                 ended = false;   // without a row in this pass

    void clear();
};

struct slot {
    int32_t          id    = 0;
    int32_t          state = DFLASH_IDLE;
    const sequence * held  = nullptr;   // by the cache

    dflash::request      request;
    slot_drafts          drafts;
    slot_pass            pass;
    slot_result          result;
    experience           learned;
    dflash_slot_counters stats       = {};
    int64_t              t_submit_us = 0, t_start_us = 0, t_first_us = 0;

    bool    running() const { return state == DFLASH_READING || state == DFLASH_WRITING; }
    bool    reading() const { return state == DFLASH_READING && !held->is_aside(); }
    bool    writing() const { return state == DFLASH_WRITING && !held->is_aside(); }
    bool    failed() const { return state == DFLASH_FAILED || state == DFLASH_REFUSED; }
    int32_t n_past() const { return held->n_past(); }
    int32_t n_left() const { return request.n_predict < 0 ? INT32_MAX : request.n_predict - stats.n_generated; }
    // Rows of its prompt that it has to read itself.
    int32_t n_unread() const {
        return state == DFLASH_READING ? (int32_t) request.prompt.size() - std::max(n_past(), held->leader.n_tokens)
                                       : 0;
    }

    void begin(dflash::request && r);     // nothing is read yet
    void begin_pass();                    // nothing is planned or emitted yet
    void start_reading(int64_t now_us);   // if it is the request's first row
    // Statistics of a tree that was walked. drafted_by: the dflash_origin of the drafter's candidates.
    void count_walk(int32_t drafted_by);
    // What the step did. Valid until the next one.
    const dflash_update & update(double verify_ms);
};

int32_t count_writing(const std::vector<slot> & slots);

// Order of requests that wait.
inline bool older(const slot * a, const slot * b) { return a->t_submit_us < b->t_submit_us; }

}   // namespace dflash
