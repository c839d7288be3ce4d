// Quotations: draft tokens without a drafter. Prompt lookup finds the longest earlier occurrence of the last tokens and
// quotes what followed. No llama.cpp types.

#pragma once

#include "draft/calibration.h"

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

namespace dflash {

// A continuation from the text itself or from a prediction (prediction.h). No tokens: nothing was found.
struct quotation {
    std::vector<int32_t> tokens;
    int32_t              matched   = 0;       // how many of the last tokens match
    float                odds      = 0;       // chance of each token, given that the ones before were right
    bool                 predicted = false;   // from the client's prediction
};

// Finds earlier occurrences: an index of all places by their last MIN_MATCH tokens.
class text_index {
  public:
    static constexpr int32_t MIN_MATCH = 3, MAX_MATCH = 24;

    // What followed the longest earlier occurrence of the end of text + [next], at most `length` tokens; of equally
    // long ones the newest. `text` may only grow between calls; after any other change call reset().
    quotation find(const std::vector<int32_t> & text, int32_t next, int32_t length);
    void      reset() {
        places_.clear();
        before_.clear();
    }

  private:
    static constexpr int32_t MAX_TRIED = 32;   // places compared per call
    static uint64_t          key(const int32_t * last) {
        return (uint64_t) (uint32_t) last[-2] * 0x9E3779B97F4A7C15ull ^ (uint64_t) (uint32_t) last[-1] << 32 ^
               (uint32_t) last[0];
    }

    std::unordered_map<uint64_t, int32_t> places_;   // the newest place with these last tokens
    std::vector<int32_t>                  before_;   // the place before it, -1: none. [indexed tokens]
};

// How often quotations continue, by the length of their match.
class quotation_odds {
  public:
    struct bin {
        int32_t most;    // max. matched tokens
        double  prior;   // before any observation
        tally   seen;
    };

    static quotation_odds of_lookup();       // short matches are often chance
    static quotation_odds of_prediction();   // the client vouches for it; without a match it is a guess

    float at(int32_t matched) const;
    // offered: nodes that could be tested; accepted: how many were accepted
    void observe(int32_t matched, int32_t offered, int32_t accepted);
    void fade(double weight);

  private:
    explicit quotation_odds(std::vector<bin> bins) : bins_(std::move(bins)) {}
    size_t index(int32_t matched) const;

    std::vector<bin> bins_;   // the last one has no bound
};

}   // namespace dflash
