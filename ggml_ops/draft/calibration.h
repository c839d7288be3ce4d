// Calibrates draft tokens: the drafter's probability of a token versus the rate at which such tokens were accepted.
// Running statistics of one slot, no llama.cpp types.

#pragma once

#include <array>
#include <cstdint>

namespace dflash {

// Decaying counts of one kind of draft token.
struct tally {
    double accepted = 0, trials = 0;

    void fade(double max_trials) {   // weigh the past as at most this many trials
        const double f = max_trials < trials ? max_trials / trials : 1.0;
        accepted *= f;
        trials *= f;
    }
};

class calibration {
  public:
    // The probability that the target samples this token once the walk has reached its parent. prob: the drafter's
    // probability. first: no sibling is likelier (a greedy target takes the first one or none, whatever the others'
    // probabilities). depth: 1 below the anchor.
    float apply(float prob, bool first, int32_t depth) const;
    // Records a node whose parent the walk has reached.
    void observe(float prob, bool first, int32_t depth, bool accepted);
    // Weighs past observations as at most this many per bin.
    void fade(double weight);

  private:
    static constexpr int32_t N_BINS = 12, N_DEPTHS = 16;
    static int32_t           bin(float prob);
    static int32_t           level(int32_t depth) { return depth < N_DEPTHS ? depth : N_DEPTHS - 1; }
    float                    of_bin(float prob, bool first) const;

    std::array<std::array<tally, N_BINS>, 2> bins_;
    std::array<tally, N_DEPTHS>              depths_;   // trials: what the bins predicted there
};

}   // namespace dflash
