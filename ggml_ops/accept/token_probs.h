// How likely tokens were, and what else was likely: what a request with n_probs gets beside its tokens. No llama.cpp
// types.

#pragma once

#include "accept/block_accept.h"
#include "dflash.h"

#include <cstdint>
#include <vector>

namespace dflash {

// Tokens of one step, in order.
class token_probs {
  public:
    // A token and the n_top likeliest of its row (equal ones by their id), by their log-probabilities: log-softmax of
    // the raw logits [n_vocab]. Throws as logits_row::scan().
    void add(const float * logits, int32_t n_vocab, int32_t token, int32_t n_top);
    // The same by what was left of the distribution when the token was drawn: positive probabilities, at most n_top of
    // them. A token that is not among them has probability 0.
    void add(std::vector<token_prob> drawn_from, int32_t token, int32_t n_top);
    void clear();

    // Valid until the next change. n_prompt: how many of the tokens are the prompt's.
    dflash_token_probs view(int32_t n_prompt) const;

  private:
    std::vector<int32_t> tokens_, n_top_, top_tokens_;
    std::vector<float>   values_, top_values_;
};

}   // namespace dflash
