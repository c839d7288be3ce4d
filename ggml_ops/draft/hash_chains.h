// Places of a text by the tokens that end there: hash chains, as LZ77 compressors have them. No llama.cpp types.

#pragma once

#include "draft/quotation.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dflash {

// A chain links the places whose last `n_tokens` tokens have the same hash, newest first. Other tokens may have that
// hash, too: compare them. Places are numbered from 0. If a text drops its beginning, chains still lead to the dropped
// places; everything after the first of them is dropped, too.
class hash_chains {
  public:
    explicit hash_chains(int32_t n_tokens) : n_tokens_(n_tokens) {}

    int32_t n_tokens() const { return n_tokens_; }
    // Forgets all places, and makes room for this many. When they are full, new ones replace the oldest; up to 2^31.
    void reset(int32_t n_places);
    bool is_full() const { return (int32_t) before_.size() == n_places_; }
    // token(i): the i-th token back from the place, 0: the one at the place.
    template <class Token> void add(int32_t place, const Token & token) {
        const size_t chain = chain_of(token);
        if (is_full()) {
            before_[place % n_places_] = heads_[chain];
        } else {
            before_.push_back(heads_[chain]);
        }
        heads_[chain] = place;
    }
    // The newest place that may end with these tokens, -1: none.
    template <class Token> int32_t newest(const Token & token) const {
        return heads_.empty() ? -1 : heads_[chain_of(token)];
    }
    int32_t before(int32_t place) const { return before_[place % n_places_]; }   // the next older one, -1: none
    size_t  bytes() const { return (heads_.capacity() + before_.capacity()) * sizeof(int32_t); }

  private:
    template <class Token> size_t chain_of(const Token & token) const {
        uint64_t hash = 0;
        for (int32_t i = 0; i < n_tokens_; ++i) {
            hash = (hash ^ (uint32_t) token(i)) * 0x9E3779B97F4A7C15ull;
            hash ^= hash >> 29;
        }
        return hash & (heads_.size() - 1);
    }

    int32_t              n_tokens_;
    int32_t              n_places_ = 0;
    std::vector<int32_t> heads_;    // a power of two
    std::vector<int32_t> before_;   // [places % n_places]
};

inline void hash_chains::reset(int32_t n_places) {
    size_t n_chains = 1;
    while (n_chains < (size_t) n_places) {
        n_chains *= 2;
    }
    n_places_ = n_places;
    heads_.assign(n_chains, -1);
    before_.clear();
}

// Chains for short and for long matches: the places of short ones are many, and only the newest of them are looked at.
class place_chains {
  public:
    explicit place_chains(int32_t least_match) : few_(least_match), many_(LONG_MATCH) {}

    void reset(int32_t n_places) {
        few_.reset(n_places);
        many_.reset(n_places);
    }
    // n_before: tokens of the text up to the place, with it.
    template <class Token> void add(int32_t place, int32_t n_before, const Token & token) {
        few_.add(place, [&](int32_t i) { return i < n_before ? token(i) : -1; });
        many_.add(place, [&](int32_t i) { return i < n_before ? token(i) : -1; });
    }
    bool   is_full() const { return few_.is_full(); }
    size_t bytes() const { return few_.bytes() + many_.bytes(); }

    // Calls visit(place, matched) for places whose last tokens are those of text + [next]. matched: how many agree, at
    // most MAX_MATCH. oldest: the first place that is there; held(place): its token.
    template <class Held, class Visit>
    void find(
        const std::vector<int32_t> & text, int32_t next, int32_t oldest, const Held & held, const Visit & visit) const {
        const int32_t n       = (int32_t) text.size();
        const auto    token   = [&](int32_t i) { return i == 0 ? next : i <= n ? text[n - i] : -1; };
        const auto    matched = [&](int32_t place) {
            int32_t m = 0;
            while (m < MAX_MATCH && m <= n && place - m >= oldest && token(m) >= 0 && held(place - m) == token(m)) {
                ++m;
            }
            return m;
        };
        follow(many_, MAX_LONG, oldest, token, matched, visit);
        follow(few_, MAX_SHORT, oldest, token, matched, [&](int32_t place, int32_t m) {
            if (m < LONG_MATCH) {   // the others were found above
                visit(place, m);
            }
        });
    }

  private:
    static constexpr int32_t LONG_MATCH = 8;
    static constexpr int32_t MAX_SHORT = 32, MAX_LONG = 16;   // places to look at

    template <class Token, class Matched, class Visit>
    static void follow(const hash_chains & chains, int32_t most, int32_t oldest, const Token & token,
        const Matched & matched, const Visit & visit) {
        int32_t place = chains.newest(token);
        for (int32_t i = 0; i < most && place >= oldest; ++i, place = chains.before(place)) {
            if (const int32_t n = matched(place); n >= chains.n_tokens()) {
                visit(place, n);
            }
        }
    }

    hash_chains few_, many_;
};

}   // namespace dflash
