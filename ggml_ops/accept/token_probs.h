// The probabilities of tokens and of their alternatives, for requests with n_probs. No llama.cpp types.

#pragma once

#include "accept/block_accept.h"
#include "dflash.h"

#include <cstdint>
#include <vector>

namespace dflash {

// The tokens of one step, in order.
class token_probs {
  public:
    // Adds a token and the n_top likeliest of its row (ties by id) with their log-probabilities, the log-softmax of the
    // raw logits [n_vocab]. Throws like logits_row::scan().
    void add(const float * logits, int32_t n_vocab, int32_t token, int32_t n_top);
    // The same with the distribution that the token was drawn from: positive probabilities, of which at most n_top are
    // listed. A token that is not among them has probability 0.
    void add(std::vector<token_prob> drawn_from, int32_t token, int32_t n_top);
    void clear() { *this = {}; }

    // Valid until the next change. n_prompt: how many of the tokens belong to the prompt.
    dflash_token_probs view(int32_t n_prompt) const;

  private:
    std::vector<int32_t> tokens_, n_top_, top_tokens_;
    std::vector<float>   values_, top_values_;
};

}   // namespace dflash
