// Which tokens a drafter proposes if it may not propose all of them: those of the texts that the engine reads and
// writes. Others come in when texts change, so no language is left out. No llama.cpp types.
//
// Others (FR-Spec, arXiv 2502.14856; EAGLE-3's d2t) choose the tokens once, by a corpus.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dflash {

class draft_vocabulary {
  public:
    // Of n_vocab tokens: how many are enough, 0: all, since fewer would save little.
    static int32_t enough(int32_t n_vocab);

    // n_tokens: how many may be proposed, at most n_vocab. always: tokens that are never left out, at most n_tokens, as
    // far as they are in the vocabulary: a drafter may know fewer tokens than its target. Before any text is known, low
    // ids fill up: tokenizers find frequent tokens first.
    draft_vocabulary(int32_t n_vocab, int32_t n_tokens, std::vector<int32_t> always);

    const std::vector<int32_t> & tokens() const { return tokens_; }   // rising

    // Tokens of a text, from the first-th on. Ids outside the vocabulary do not count.
    void count(const std::vector<int32_t> & text, size_t first = 0);
    // Whether the newest texts have many tokens that may not be proposed.
    bool is_outdated() const { return n_counted_ >= WINDOW && n_missing_ * MOST_MISSING > n_counted_; }
    // Chooses anew: the most frequent tokens of all texts, newer ones with more weight.
    void choose();

  private:
    static constexpr int64_t WINDOW = 256, LONG_WINDOW = 2048;   // tokens counted since the last choice
    static constexpr int64_t MOST_MISSING = 50;                  // one of so many
    static constexpr int64_t FADING       = 1 << 20;             // tokens after which older ones count half

    std::vector<int32_t>  always_;
    std::vector<int32_t>  tokens_;
    std::vector<bool>     holds_;    // [n_vocab]
    std::vector<uint32_t> counts_;   // [n_vocab]
    int32_t               n_tokens_;
    int64_t               n_counted_ = 0, n_missing_ = 0;   // since the last choice
    int64_t               n_fading_ = 0;                    // since older ones were halved
};

}   // namespace dflash
