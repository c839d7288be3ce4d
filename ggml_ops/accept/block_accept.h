// Block verification (arXiv 2403.10444, Algorithm 2): acceptance of a chain that was drawn from a known distribution.
// Pure functions, no llama.cpp types.
//
// Sample-and-match (sample_and_match.h) needs no probabilities from the drafter and gives the text of plain decoding.
// This rule uses both models' probabilities over the whole block. The text has the target's distribution but differs
// for the same seed; the expected number of accepted tokens is the highest of any rule for a chain drawn from q.

#pragma once

#include "draft/tree_growth.h"

#include <cstdint>
#include <functional>
#include <random>
#include <vector>

namespace dflash {

// Source of random decisions. A test can enumerate all of them.
class random_decisions {
  public:
    virtual ~random_decisions()              = default;
    virtual bool happens(double probability) = 0;
    // Draws an index in proportion to its weight. Weights are finite and >= 0, at least one is positive.
    virtual int32_t pick(const std::vector<double> & weights) = 0;
};

// The same decisions for the same seed on all platforms. The standard library's distributions are not portable.
class seeded_decisions : public random_decisions {
  public:
    explicit seeded_decisions(uint64_t seed) : engine_(seed) {}
    bool    happens(double probability) override { return roll() < probability; }
    int32_t pick(const std::vector<double> & weights) override;

  private:
    double          roll() { return double(engine_() >> 11) * 0x1p-53; }   // [0, 1)
    std::mt19937_64 engine_;
};

struct token_prob {
    int32_t token;
    double  prob;
};

// How a request's sampler changes a distribution. A chain may be drawn from any q, but acceptance is highest if q is
// close to the target's distribution, so the draft is shaped the same way.
struct draft_shape {
    double  temperature = 1;   // > 0
    int32_t top_k       = 0;   // 0: all
    double  top_p       = 1;
    double  min_p       = 0;
};

// A chain drawn from a draft, with the distributions it was drawn from.
struct drawn_chain {
    int32_t                 anchor = -1;
    int32_t                 top_k  = 0;
    std::vector<int32_t>    tokens;       // [length], after the anchor
    std::vector<int32_t>    candidates;   // [length]: their indices in the draft
    std::vector<token_prob> rows;         // [length, top_k]: q(. | previous tokens); each sums to 1
    std::vector<float> best;   // [length]: highest probability of the draft's row, known before the token was drawn

    int32_t            length() const { return (int32_t) tokens.size(); }
    const token_prob * row(int32_t i) const { return rows.data() + (size_t) i * top_k; }
    double             q(int32_t i) const { return row(i)[candidates[i]].prob; }   // > 0

    // Keeps the first n tokens. n must not depend on the tokens, otherwise the dropped tokens would become too rare.
    void truncate(int32_t n);

    // The rows of the target pass. node.prob is `best`, not q: like the probabilities of a grown tree, it was known
    // before the token was drawn, so both share one calibration.
    tree to_tree() const;
};

// Draws `length` tokens (at most as many as the draft has), each given the previous one. A lattice gives joint
// probabilities; with marginals, positions are independent. The length is fixed before drawing.
drawn_chain draw_chain(
    const draft & d, int32_t anchor, int32_t length, const draft_shape & shape, random_decisions & random);

struct block_result {
    int32_t accepted = 0;    // number of accepted tokens, 0..length
    int32_t bonus    = -1;   // the token after them
};

// target(i) -> the target's distribution after the anchor and the first i drawn tokens: positive probabilities that sum
// to 1, each token at most once. Called for i = 0, 1, ... in order, once each, up to the length or the first token that
// the target would never sample. The result must stay valid until the next call.
using target_rows = std::function<const std::vector<token_prob> &(int32_t i)>;

// Throws std::runtime_error if a row is empty.
block_result block_accept(const drawn_chain & chain, const target_rows & target, random_decisions & random);

}   // namespace dflash
