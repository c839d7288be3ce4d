#include "accept/token_probs.h"

#include "accept/logits_row.h"

#include <algorithm>

namespace dflash {

void token_probs::add(const float * logits, int32_t n_vocab, int32_t token, int32_t n_top) {
    logits_row                    row;
    std::vector<llama_token_data> largest;
    row.scan(logits, n_vocab);
    row.largest(n_top, largest);
    const double log_sum = row.log_sum_exp();
    tokens_.push_back(token);
    values_.push_back((float) (logits[token] - log_sum));
    n_top_.push_back((int32_t) largest.size());
    for (const llama_token_data & one : largest) {
        top_tokens_.push_back(one.id);
        top_values_.push_back((float) (one.logit - log_sum));
    }
}

void token_probs::add(std::vector<token_prob> drawn_from, int32_t token, int32_t n_top) {
    const auto   it   = std::find_if(drawn_from.begin(), drawn_from.end(), [&](auto & t) { return t.token == token; });
    const double prob = it == drawn_from.end() ? 0.0 : it->prob;
    const size_t kept = std::min<size_t>(n_top, drawn_from.size());
    std::partial_sort(drawn_from.begin(), drawn_from.begin() + kept, drawn_from.end(),
        [](const token_prob & a, const token_prob & b) {
            return a.prob != b.prob ? a.prob > b.prob : a.token < b.token;
        });
    tokens_.push_back(token);
    values_.push_back((float) prob);
    n_top_.push_back((int32_t) kept);
    for (size_t i = 0; i < kept; ++i) {
        top_tokens_.push_back(drawn_from[i].token);
        top_values_.push_back((float) drawn_from[i].prob);
    }
}

dflash_token_probs token_probs::view(int32_t n_prompt) const {
    return { (int32_t) tokens_.size(), n_prompt, tokens_.data(), values_.data(), n_top_.data(), top_tokens_.data(),
        top_values_.data() };
}

}   // namespace dflash
