// Quotations: draft tokens without a drafter. Prompt lookup: what followed the longest earlier occurrence of the last
// tokens. Pure, no llama.cpp types.

#pragma once

#include "draft/calibration.h"

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

namespace dflash {

// A continuation that the text itself suggests, or a prediction (prediction.h). Without tokens nothing was found.
struct quotation {
    std::vector<int32_t> tokens;              // that followed
    int32_t              matched   = 0;       // how many of the last tokens the two places share
    float                odds      = 0;       // chance of each further token while the ones before were right
    bool                 predicted = false;   // from the client's prediction
};

// Finds earlier occurrences: an index of all places by their last MIN_MATCH tokens.
class text_index {
  public:
    static constexpr int32_t MIN_MATCH = 3, MAX_MATCH = 24;

    // What followed the longest earlier occurrence of the end of text + [next], at most `length` tokens; of equal ones
    // the newest. `text` may have grown since the last call; after any other change call reset().
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

// How often quotations go on, by how much of the text before they share.
class quotation_odds {
  public:
    struct bin {
        int32_t most;    // matched tokens
        double  prior;   // before anything was seen
        tally   seen;
    };

    static quotation_odds of_lookup();       // short matches are often chance
    static quotation_odds of_prediction();   // which the client believes in; what matched nothing is a guess

    float at(int32_t matched) const;
    // offered: nodes that could be tested, accepted: how many were
    void observe(int32_t matched, int32_t offered, int32_t accepted);
    void fade(double weight);

  private:
    explicit quotation_odds(std::vector<bin> bins) : bins_(std::move(bins)) {}
    size_t index(int32_t matched) const;

    std::vector<bin> bins_;   // the last one has no bound
};

}   // namespace dflash
