// Prompt lookup: earlier places of the conversation itself that agree with its last tokens. No llama.cpp types.

#pragma once

#include "draft/hash_chains.h"

#include <cstdint>
#include <vector>

namespace dflash {

class text_index {
  public:
    static constexpr int32_t MIN_MATCH = 2;

    // Adds what followed earlier occurrences of the end of text + [next], at most `length` tokens of each. Of places
    // that agree with few tokens only the newest are found. `text` may only grow between calls; after any other change
    // call reset().
    void find(const std::vector<int32_t> & text, int32_t next, int32_t length, continuations & found);
    void reset() {
        n_places_ = 0;
        chains_   = place_chains(MIN_MATCH);
    }

  private:
    void index(const std::vector<int32_t> & text);

    place_chains chains_{ MIN_MATCH };
    int32_t      n_places_ = 0;   // indexed
};

}   // namespace dflash
