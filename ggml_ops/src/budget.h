// How many nodes the next trees may have: pure functions and small running statistics, no llama.cpp types.
//
// A step costs T_draft + T_verify(rows) + T_other and yields one token per slot plus the values of the verified nodes.
// Real cost curves are stepped and not convex, so every count is scanned.

#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

namespace dflash {

// Milliseconds of a pass by its width (rows): measured points, linear in between, kept fresh by a moving average.
class cost_curve {
  public:
    void   set(int32_t rows, double ms) { points_[rows] = ms; }
    void   observe(int32_t rows, double ms);   // a pass that ran
    double at(int32_t rows) const;             // 0 if nothing was ever set
    bool   empty() const { return points_.empty(); }
    const std::map<int32_t, double> & points() const { return points_; }

  private:
    std::map<int32_t, double> points_;
};

// Maps the drafter's probability of a token to the rate at which such tokens were accepted, in bins, per slot.
class calibration {
  public:
    float apply(float prob) const;
    void  observe(float prob, bool accepted);
    void  fade(double weight);               // count what was seen as at most this many observations per bin

  private:
    static constexpr int32_t N_BINS = 12;
    static int32_t bin(float prob);
    struct counts { double accepted = 0, seen = 0; };
    std::array<counts, N_BINS> bins_;
};

struct node_choice {
    int32_t n_nodes = 0;       // over all slots, anchors counted
    double  gain    = 0;       // expected tokens of the step
    double  rate    = 0;       // expected tokens per ms
    std::vector<int32_t> per_slot;  // nodes per slot, anchor counted
};

// llama.cpp keeps the graph of the last pass: another width costs its rebuilding.
struct last_pass {
    int32_t rows       = 0;
    double  rebuild_ms = 0;
};

// values[s]: the draft nodes' values of slot s in falling order (the anchor, worth 1, not among them).
// fixed_ms: T_draft + T_other of the step. max_rows bounds the pass. Counts are those of measured passes, multiples of 4 (the
// row groups of the CPU's matrix products) and all there is, so that shapes recur.
node_choice choose_nodes(const std::vector<std::vector<float>> & values, const cost_curve & verify, double fixed_ms, int32_t max_rows, last_pass last = {});

// Running acceptance of one slot by depth: decides how much of the block to denoise, and whether drafting pays at all.
class survival {
  public:
    void   observe(int32_t drafted, int32_t accepted);   // one verified tree: its depth, and how deep the walk got
    double at(int32_t depth) const;                      // chance that a draft token at this depth is accepted, 1-based
    void   fade(double weight);                          // count what was seen as at most this many observations per depth

  private:
    static constexpr int32_t MAX_DEPTH = 63;
    struct counts { double reached = 0, tried = 0; };
    std::array<counts, MAX_DEPTH + 1> depths_;           // conditional on the parent: tried if the parent was reached
};

struct length_choice {
    int32_t length = 1;        // block tokens to denoise
    double  rate   = 0;        // expected tokens per ms
    double  gain   = 0;        // expected tokens of the step, all slots
};

// One block length for all slots of a drafter pass, the best of `lengths` (ascending). 1 without slots.
length_choice choose_length(const std::vector<const survival *> & slots, const std::vector<int32_t> & lengths, const cost_curve & verify, const cost_curve & draft, double other_ms);

// Whether to draft at all: compares what drafted steps really brought with what plain ones would have. Where they lose, it
// rests and tries again after a while, ever more rarely. "A user must never be slower than without us."
class draft_switch {
  public:
    bool draft_now();                                              // asked once per step
    void drafted(double tokens, double ms, double plain_rate);     // a step with drafts: its yield, its cost; plain_rate in tokens per ms
    void new_text();                                               // a new answer begins: look again, briefly
    bool resting() const { return rest_ > 0; }
    double rate() const { return ms_ > 0 ? tokens_ / ms_ : 0; }    // tokens per ms of drafted steps, moving average

  private:
    static constexpr int32_t TRIAL = 3, MIN_REST = 16, MAX_REST = 512;
    double  tokens_ = 0, ms_ = 0;
    int32_t seen_ = 0, trial_ = 2 * TRIAL, rest_ = 0, backoff_ = 0;
};

}  // namespace dflash
