#include "draft/draft_vocabulary.h"

#include <algorithm>

namespace dflash {

int32_t draft_vocabulary::enough(int32_t n_vocab) {
    constexpr int32_t FEWEST = 8192, STEP = 1024;
    const int32_t     n = std::max(FEWEST, (n_vocab / 8 + STEP - 1) / STEP * STEP);
    return n <= n_vocab / 2 ? n : 0;
}

draft_vocabulary::draft_vocabulary(int32_t n_vocab, int32_t n_tokens, std::vector<int32_t> always) :
    always_(std::move(always)), holds_(n_vocab), counts_(n_vocab), n_tokens_(n_tokens) {
    const auto is_outside = [&](int32_t token) { return token < 0 || token >= n_vocab; };
    always_.erase(std::remove_if(always_.begin(), always_.end(), is_outside), always_.end());
    choose();
}

void draft_vocabulary::count(const std::vector<int32_t> & text, size_t first) {
    if (n_counted_ >= LONG_WINDOW) {   // what is long past must not hide that the text has changed
        n_counted_ = n_missing_ = 0;
    }
    for (size_t i = first; i < text.size(); ++i) {
        const int32_t token = text[i];
        if (token >= 0 && token < (int32_t) counts_.size()) {
            ++counts_[token];
            ++n_counted_;
            n_missing_ += !holds_[token];
        }
    }
    n_fading_ += (int64_t) (text.size() - std::min(first, text.size()));
    if (n_fading_ >= FADING) {
        std::for_each(counts_.begin(), counts_.end(), [](uint32_t & n) { n /= 2; });
        n_fading_ = 0;
    }
}

void draft_vocabulary::choose() {
    std::vector<int32_t> seen;
    for (int32_t token = 0; token < (int32_t) counts_.size(); ++token) {
        if (counts_[token] > 0) {
            seen.push_back(token);
        }
    }
    std::stable_sort(seen.begin(), seen.end(), [&](int32_t a, int32_t b) { return counts_[a] > counts_[b]; });
    tokens_.clear();
    std::fill(holds_.begin(), holds_.end(), false);
    const auto add = [&](int32_t token) {
        if ((int32_t) tokens_.size() < n_tokens_ && !holds_[token]) {
            holds_[token] = true;
            tokens_.push_back(token);
        }
    };
    std::for_each(always_.begin(), always_.end(), add);
    std::for_each(seen.begin(), seen.end(), add);
    for (int32_t token = 0; (int32_t) tokens_.size() < n_tokens_; ++token) {
        add(token);
    }
    std::sort(tokens_.begin(), tokens_.end());
    n_counted_ = n_missing_ = 0;
}

}   // namespace dflash
