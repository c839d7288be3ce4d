// Quotations: draft tokens that need no drafter, because they followed the same tokens before. Continuations of several
// places share a prefix tree. No llama.cpp types.

#pragma once

#include "dflash.h"
#include "draft/calibration.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace dflash {

inline constexpr int32_t MAX_MATCH = 24;   // more agreeing tokens count as this many

enum class quote_source : uint8_t {
    text,         // the conversation itself
    prediction,   // what the client expects (prediction.h)
    corpus,       // files of the user (corpus.h)
    answers,      // earlier answers of the server (earlier_answers.h)
};
inline constexpr size_t N_QUOTE_SOURCES = DFLASH_QUOTE_SOURCES;

// Places whose last tokens agree with the end of a text, and what follows there.
class continuations {
  public:
    struct place {
        quote_source source;
        int32_t      matched;   // how many of the last tokens agree
        size_t       first;     // of its tokens
        int32_t      n_tokens;
    };

    void clear();
    void begin(quote_source source, int32_t matched);   // of another place
    void push(int32_t token);                           // what follows next there

    const std::vector<place> & places() const { return places_; }
    int32_t                    token(const place & p, int32_t i) const { return tokens_[p.first + i]; }

  private:
    std::vector<place>   places_;
    std::vector<int32_t> tokens_;
};

// How a continuation stands among those of its source that follow the same tokens.
enum class quote_rank : uint8_t {
    alone,     // the only continuation, found in one place
    again,     // the only continuation, found in several places
    leading,   // it agrees with more tokens than all others, or most of the places that do have it
    tied,      // others agree with as many
    behind,    // others agree with more
};
inline constexpr size_t N_QUOTE_RANKS = 5;

struct quote_kind {
    quote_source source  = quote_source::text;
    quote_rank   rank    = quote_rank::alone;
    int32_t      matched = 0;   // tokens that agree before it, at most MAX_MATCH
};

// How often quoted tokens are right, given that the ones before them were: priors measured on real models' answers
// (docs/budget.md), corrected by what a slot has seen.
class quote_priors {
  public:
    float at(const quote_kind & kind) const;
    void  observe(const quote_kind & kind, bool right);
    void  fade(double weight);   // weigh the past as at most this many observations of a kind

  private:
    static constexpr std::array<int32_t, 8> MOST_MATCHED = { 0, 1, 2, 3, 4, 6, 10, 16 };   // of each bin but the last
    static constexpr size_t                 N_BINS       = MOST_MATCHED.size() + 1;
    using table                                          = std::array<std::array<float, N_BINS>, N_QUOTE_RANKS>;
    static const std::array<table, N_QUOTE_SOURCES> PRIORS;

    static size_t bin(int32_t matched);

    std::array<std::array<std::array<tally, N_BINS>, N_QUOTE_RANKS>, N_QUOTE_SOURCES> seen_;
};

// A prefix tree of continuations. Token 0 is the anchor, which they follow.
struct quotation {
    static constexpr int32_t MAX_AFTER = 4;   // entries that follow one

    struct entry {
        int32_t    token   = -1;
        int32_t    depth   = 0;   // 1 below the anchor
        float      prob    = 1;   // probability of it, given that the ones before were right
        float      value   = 1;   // product over the path
        quote_kind kind    = {};
        int32_t    first   = 0;   // of the entries that follow it, the likeliest first
        int32_t    n_after = 0;
    };
    std::vector<entry> entries;

    bool empty() const { return entries.size() <= 1; }
    // The entry that follows `at` with this token, -1: none.
    int32_t after(int32_t at, int32_t token) const;
    // Values of all its tokens, or of the likeliest path alone, in descending order.
    std::vector<float> values(bool path_only) const;
};

// The prefix tree of what was found, at most `length` tokens deep, without tokens that are too unlikely.
quotation quote(int32_t anchor, const continuations & found, const quote_priors & priors, int32_t length);

// What the text's next tokens say of a quotation: each of its tokens that was to be the next one was right or wrong,
// whether it was drafted or not.
void observe(quote_priors & priors, const quotation & quoted, const std::vector<int32_t> & tokens);

}   // namespace dflash
