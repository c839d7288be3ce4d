// What the server answered before (--lookup-answers), in memory: the newest tokens of each owner, for its own requests
// alone. No llama.cpp types.

#pragma once

#include "draft/hash_chains.h"

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace dflash {

class earlier_answers {
  public:
    static constexpr int32_t MIN_MATCH = 3;

    // n_kept: tokens of each owner, the oldest go first; 0: none are kept.
    explicit earlier_answers(int32_t n_kept) : n_kept_(n_kept) {}

    // An answer's tokens, with those of its prompt that come before `first`; of the prompt, some of the last are kept,
    // so that the beginning of the answer is found, too.
    // Throws std::bad_alloc; then forget() the owner.
    void add(int32_t owner, const std::vector<int32_t> & tokens, int32_t first);
    void forget(int32_t owner) { of_owner_.erase(owner); }
    // Adds what followed places of the owner's answers that agree with the end of text + [next], at most `length`
    // tokens of each.
    void find(
        int32_t owner, const std::vector<int32_t> & text, int32_t next, int32_t length, continuations & found) const;

    int64_t size() const;   // tokens of all owners
    size_t  bytes() const;

  private:
    struct memory {
        std::vector<int32_t> tokens;        // token i is at i % n_kept
        int32_t              n_added = 0;   // since the beginning
        place_chains         chains{ MIN_MATCH };
    };
    void push(memory & m, int32_t token) const;

    int32_t                             n_kept_;
    std::unordered_map<int32_t, memory> of_owner_;
};

}   // namespace dflash
