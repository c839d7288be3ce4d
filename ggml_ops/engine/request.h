// A request that is ready to run: checked, with the engine's settings where it has none, its sampler and grammar built.

#pragma once

#include "dflash.h"
#include "draft/prediction.h"
#include "engine/prompt_media.h"
#include "llama/drafter_kind.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace dflash {

class live_media;    // media/live_media.h
class media_table;   // media/media_table.h
class sampler;       // accept/sampling.h
class target;

struct request {
    std::vector<int32_t> prompt;   // at least one token
    prompt_media         media;
    std::shared_ptr<dflash::sampler>
               sampler;              // has seen the prompt. Never shared; a unique_ptr needs llama.cpp's types
    int32_t    n_predict     = -1;   // -1: until the context is full
    bool       cache_prompt  = true;
    bool       greedy        = false;   // temperature 0
    int32_t    budget        = 0;       // 0 auto, 1 plain, N fixed
    int32_t    max_children  = 1;       // of a node: 1 chains
    int32_t    depth         = 0;       // most tokens on a path that the drafter proposes
    int32_t    quote_depth   = 0;       // most tokens of a quotation
    bool       lookup        = true;    // quotations of all but the prediction
    int32_t    lookup_owner  = 0;       // whose earlier answers may be quoted
    bool       block_accept  = false;   // block verification instead of sample-and-match
    int32_t    n_probs       = 0;       // likeliest tokens to list beside each token, 0: none
    bool       post_probs    = false;   // by the probabilities after sampling
    int32_t    probs_from    = 0;       // first prompt token whose probability is wanted, 0: none
    bool       return_drafts = false;   // report each verified tree
    prediction predicted;               // of the answer, by the client

    // Whether the row of prompt[i] must have logits, beside the one that is sampled from: it predicts the next token.
    bool wants_probs_after(int32_t i) const {
        return probs_from > 0 && i + 1 >= probs_from && i + 1 < (int32_t) prompt.size();
    }
};

// Checks a request and makes it ready. Any thread: reads only what is fixed after loading. Throws status_error,
// field_error. drafters: their kinds, of which there may be none; params: resolved (params.h).
request prepare_request(const dflash_request_params & r, const dflash_engine_params & params, const target & target,
    const drafter_kinds & drafters, const media_table & table, const live_media & live);

// Throws unless these are tokens of the target or media, at least one and fewer than a slot's context.
prompt_media check_tokens(
    const int32_t * tokens, int32_t n, const target & target, const media_table & table, const live_media & live);
// The same for tokens alone, which may be few or many.
void check_text(const int32_t * tokens, int32_t n, const target & target);

// Throws field_error unless one of the drafters can do what accept=block needs: the probability with which a draft was
// drawn, which only a lattice has.
void require_lattice(const drafter_kinds & drafters);

}   // namespace dflash
