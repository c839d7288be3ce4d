// Texts that the user named (--lookup-corpus), as a suffix array over their tokens. Immutable, so all slots share it.
// No llama.cpp types.

#pragma once

#include "draft/quotation.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dflash {

class corpus {
  public:
    static constexpr int32_t MIN_MATCH  = 4;         // fewer agreeing tokens are mostly chance
    static constexpr int32_t NO_TOKEN   = -1;        // ends a text
    static constexpr int32_t MAX_TOKENS = 1 << 28;   // of all texts

    corpus() = default;
    explicit corpus(std::vector<int32_t> tokens);   // of texts that NO_TOKEN ends

    // Adds what follows places that agree with the end of text + [next], at most `length` tokens of each: places that
    // agree with the most tokens, and places that agree with fewer, evenly spread.
    void find(const std::vector<int32_t> & text, int32_t next, int32_t length, continuations & found) const;

    int32_t size() const { return (int32_t) tokens_.size(); }   // with the ends of texts
    size_t  bytes() const { return (tokens_.capacity() + places_.capacity()) * sizeof(int32_t); }

  private:
    struct range {
        size_t first = 0, end = 0;
    };
    range agreeing(const int32_t * last, int32_t n) const;   // with these n tokens, of which `last` is the last one

    std::vector<int32_t> tokens_;
    std::vector<int32_t> places_;   // in the order of the tokens that end there, read backwards
};

}   // namespace dflash
