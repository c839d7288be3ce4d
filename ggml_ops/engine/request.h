// A request that is ready to run: checked, with the engine's settings where it has none, its sampler and grammar built.

#pragma once

#include "accept/sampling.h"

#include "dflash.h"
#include "draft/prediction.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace dflash {

class drafter;
class engine;

struct prepared_request {
    const engine *                   owner = nullptr;   // the sampler reads this engine's vocabulary
    std::vector<int32_t>             prompt;            // at least one token
    std::unique_ptr<dflash::sampler> sampler;           // has seen the prompt
    int32_t                          n_predict    = -1;
    bool                             cache_prompt = true;
    bool                             greedy       = false;    // temperature 0
    int32_t                          budget       = 0;        // 0 auto, 1 plain, N fixed
    int32_t                          width        = 1;        // children per node: 1 chains
    int32_t                          depth        = 0;        // most tokens on a path that the drafter proposes
    int32_t                          quote_depth  = 0;        // most tokens of a quotation
    bool                             lookup       = true;     // quotations of the text itself
    prediction                       predicted;               // of the answer
    bool                             block         = false;   // block verification instead of sample-and-match
    int32_t                          n_probs       = 0;       // likeliest tokens to tell of beside each token, 0: none
    bool                             post_probs    = false;   // by the probabilities after sampling
    int32_t                          probs_from    = 0;       // first prompt token to tell of, 0: none
    bool                             return_drafts = false;   // tell of each verified tree
};

// Throws field_error unless `drafter` (may be null) can do what accept=block needs: the probability with which a draft
// was drawn, which only a lattice has (DFlash 2, DSpark).
void require_lattice(const drafter * drafter);

}   // namespace dflash

struct dflash_prepared : dflash::prepared_request {};
