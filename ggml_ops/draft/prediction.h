// Text that a client expects in the answer (OpenAI's "predicted outputs"): where the answer is in it, and so what comes
// next. No llama.cpp types.

#pragma once

#include "draft/quotation.h"

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace dflash {

// Follows the answer token by token. When the answer leaves the prediction, its next tokens show where it continues:
// nearby a single matching token is enough, farther away it takes three. Until then each token counts as the
// replacement of a predicted one. All of this depends only on the answer, not on how it was drafted.
class prediction {
  public:
    prediction() = default;
    explicit prediction(std::vector<int32_t> tokens);

    void advance(int32_t token);   // the answer's next token
    // Adds what comes next, at most `length` tokens. If no token before it matched, it is a guess.
    void find(int32_t length, continuations & found) const;

    int32_t size() const { return (int32_t) tokens_.size(); }
    int32_t n_met() const { return n_met_; }   // tokens found in the answer, in runs of at least three

  private:
    static constexpr int32_t CERTAIN   = 3;    // matching tokens that make a place certain
    static constexpr int32_t NEAR      = 64;   // how far ahead a single matching token is enough
    static constexpr int32_t MAX_TRIED = 64;   // places compared per token
    static constexpr int32_t MAX_LOST  = 16;   // tokens that may be replacements

    int32_t matched(int32_t place) const;   // how many of the newest tokens end at this place
    int32_t search() const;                 // the place of the newest token, -1: unknown
    void    meet(int32_t first, int32_t end);

    std::vector<int32_t>                              tokens_;
    std::vector<bool>                                 met_;               // [tokens]
    std::unordered_map<int32_t, std::vector<int32_t>> places_;            // of each token, rising
    std::vector<int32_t>                              newest_;            // of the answer, at most MAX_MATCH
    int32_t                                           next_  = 0;         // the place expected next, -1: unknown
    int32_t                                           run_   = CERTAIN;   // matching tokens before it
    int32_t                                           known_ = 0;         // the last place that was certain
    int32_t                                           lost_  = 0;         // tokens that matched nowhere since then
    int32_t                                           n_met_ = 0;
};

}   // namespace dflash
