// Text that a client expects in the answer (OpenAI's "predicted outputs"): where the answer stands in it, and so what
// comes next. Pure, no llama.cpp types.

#pragma once

#include "draft/lookup.h"

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace dflash {

// Follows the answer token by token. Where the answer leaves the prediction, its next tokens tell where it goes on:
// near by one that fits is enough, elsewhere it takes three. Until then each token is taken for the replacement of a
// predicted one. All of it depends on the answer alone, not on how it was drafted.
class prediction {
  public:
    prediction() = default;
    explicit prediction(std::vector<int32_t> tokens);

    void advance(int32_t token);   // the answer's next token
    // What comes next, at most `length` tokens. `matched`: how many tokens before it fitted, 0: it is a guess.
    quotation quote(int32_t length) const;

    int32_t size() const { return (int32_t) tokens_.size(); }
    int32_t n_met() const { return n_met_; }   // tokens that the answer has, in runs of at least three

  private:
    static constexpr int32_t CERTAIN   = 3;    // tokens that fit: the place is the right one
    static constexpr int32_t NEAR      = 64;   // how far ahead one token that fits will do
    static constexpr int32_t MAX_TRIED = 64;   // places compared per token
    static constexpr int32_t MAX_LOST  = 16;   // tokens that may be replacements

    int32_t matched(int32_t place) const;   // how many of the newest tokens end at this place
    int32_t search() const;                 // the place of the newest token, -1: unknown
    void    meet(int32_t first, int32_t end);

    std::vector<int32_t>                              tokens_;
    std::vector<bool>                                 met_;               // [tokens]
    std::unordered_map<int32_t, std::vector<int32_t>> places_;            // of each token, rising
    std::vector<int32_t>                              newest_;            // of the answer, at most MAX_MATCH
    int32_t                                           next_  = 0;         // what is expected next, -1: unknown
    int32_t                                           run_   = CERTAIN;   // tokens before it that fitted
    int32_t                                           known_ = 0;         // the last place that was certain
    int32_t                                           lost_  = 0;         // tokens that fitted nowhere since then
    int32_t                                           n_met_ = 0;
};

}   // namespace dflash
