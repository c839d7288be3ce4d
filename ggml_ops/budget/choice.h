// How many nodes and how long a block pay best, and whether drafts pay at all: pure functions and small running
// statistics, no llama.cpp types. Which slot has which budget is decided in engine/controller.cpp, which calls these.
//
// A step costs T_draft + T_verify(rows) + T_other and yields one token per slot plus the values of the verified nodes.
// Real cost curves have steps and are not convex, so every count is evaluated.

#pragma once

#include "budget/cost_curve.h"

#include <cstdint>
#include <map>
#include <vector>

namespace dflash {

struct node_choice {
    int32_t              n_nodes = 0;   // over all slots, including anchors
    double               gain    = 0;   // expected tokens of the step
    double               rate    = 0;   // expected tokens per ms
    std::vector<int32_t> per_slot;      // nodes per slot, including the anchor
};

// llama.cpp keeps the graph of the last pass; a pass of another width has to rebuild it.
struct last_pass {
    int32_t rows       = 0;
    double  rebuild_ms = 0;
};

// values[s]: values of slot s's draft nodes in descending order, without the anchor (whose value is 1).
// n_attended: positions that a row attends to, averaged over the slots. fixed_ms: T_draft + T_other of the step.
// max_rows limits the pass. Only these counts are considered, so that shapes recur: small ones, those of measured
// passes, multiples of 4 (the row groups of the CPU's matrix products) and the total; if passes are padded, full
// widths.
node_choice best_nodes(const std::vector<std::vector<float>> & values, const cost_curve & verify, double n_attended,
    double fixed_ms, int32_t max_rows, last_pass last = {});

// What a slot's recent trees were worth, by the length of the block that they were grown from. Decides how much of the
// next block to denoise.
class value_profile {
  public:
    // Records a tree of maximum size, grown from a block of `length` tokens: depths and values of its draft nodes, in
    // descending order of value. Also records what the shorter ones of `lengths` would have given.
    void observe(int32_t length, const std::vector<int32_t> & lengths, const std::vector<int32_t> & depths,
        const std::vector<float> & values);
    // Expected values, in descending order, of the draft nodes from a block of `length` tokens; null if unknown or
    // stale.
    const std::vector<float> * at(int32_t length) const;

  private:
    static constexpr int32_t STALE = 32;   // observations of shorter blocks until a longer one is unknown again
    // If a block's last node has at least this value, a longer block counts as unknown at once.
    static constexpr float GOOD_END = 0.4f;
    static constexpr float NEWEST   = 0.5f;   // weight of the newest tree: easy and hard stretches of a text alternate
    struct mean {
        std::vector<float> values;
        int32_t            age = 0;
    };
    std::map<int32_t, mean> lengths_;
};

struct length_choice {
    int32_t length  = 1;   // block tokens to denoise
    double  rate    = 0;   // expected tokens per ms, 0: unknown
    double  known   = 0;   // highest rate of a length that is known, 0: none is
    double  gain    = 0;   // expected tokens of the step, all slots
    int32_t nodes   = 0;   // expected nodes of the step, all slots
    int32_t drafter = 0;
};

// The longest block of `lengths` (ascending) whose rate is nearly the best, the same for all slots of a drafter pass; a
// length that one of the slots does not know is tried. 1 without slots.
length_choice best_length(const std::vector<const value_profile *> & slots, const std::vector<int32_t> & lengths,
    const cost_curve & verify, double n_attended, const cost_curve & draft, double other_ms, int32_t max_rows);

// Which of several drafters drafts. One stays until another one's rate is higher by a tenth, since that must read first
// what it has missed. The others draft for one step from time to time, at growing intervals while they lose. Some
// passages are easier than others, for all drafters alike, so a rate is only compared with that of the step before.
class drafter_turns {
  public:
    // best: of each drafter that may draft, in order of preference. At least one. A step that may turn out to have no
    // drafts is chosen for on a copy, which is kept if there are some.
    const length_choice & choose(const std::vector<length_choice> & best);
    void                  new_text();   // a new answer begins: compare them again soon

  private:
    static constexpr int32_t MIN_WAIT = 16, MAX_WAIT = 512;   // drafted steps
    static constexpr double  GAIN = 0.1;                      // for which drafters change
    static constexpr int32_t FEW = 3, MANY = 9;               // comparisons that the newest one is averaged with
    struct turn {
        int32_t n_since = MIN_WAIT, wait = MIN_WAIT;
        int32_t n_compared = 0;
        double  gain       = 0;   // log of its rate over the current drafter's
    };

    void                  make_current(int32_t drafter);
    static void           compare(turn & t, double gain);
    const length_choice * due(const std::vector<length_choice> & best);

    std::map<int32_t, turn> turns_;   // by drafter
    int32_t                 current_ = -1;
};

// Leaves out drafters that failed while another one may draft, for a growing number of steps that others draft.
class drafter_rests {
  public:
    void fail(int32_t drafter);
    void drafted(int32_t drafter);
    void new_text();                                               // a new answer begins: rests end soon
    bool any_ready(const std::vector<int32_t> & drafters) const;   // whether one of them does not rest
    // Those with the shortest rest, in the same order. drafters: at least one.
    std::vector<int32_t> ready(const std::vector<int32_t> & drafters) const;

  private:
    static constexpr int32_t MIN_REST = 16, MAX_REST = 512;
    struct rest {
        int32_t n_left = 0, length = 0;   // steps to come; of the last rest
    };

    int32_t n_left(int32_t drafter) const;

    std::map<int32_t, rest> rests_;   // by drafter, of those that failed last
};

// Whether to draft at all. It keeps account of what drafts lose: the tokens that plain decoding would have written in
// the time of a step with drafts, less those that came. Gains make up for losses, but are not saved up for later ones
// (a one-sided CUSUM: Page, "Continuous inspection schemes", Biometrika 1954). Where the loss reaches a limit, drafts
// rest, and are tried again at growing intervals. So hard passages of a text that gains don't stop drafts, and those of
// a text that loses rest, however small the loss of a step is. "A user must never be slower than without us."
class draft_switch {
  public:
    bool draft_now();   // once per step without a fixed budget
    // Records a step with drafts: number of slots, accepted draft tokens, the number that their values predicted, the
    // step's cost, and tokens per ms of plain decoding.
    void observe(int32_t n_slots, double accepted, double expected, double ms, double plain_rate);
    void fail();   // a drafter's pass failed, and no other may draft: they rest, longer until one succeeds
    // A new answer begins: it tries at once, or soon if n_others write meanwhile, whom that would cost as much.
    void new_text(int32_t n_others = 0);
    bool resting() const { return rest_ > 0; }
    // Tokens per ms of the last steps with drafts.
    double rate() const { return recent_ms_ > 0 ? recent_tokens_ / recent_ms_ : 0; }

  private:
    static constexpr int32_t MIN_REST = 4, MAX_REST = 512, OTHERS_REST = 64;
    static constexpr double  LIMIT  = 3;   // tokens of each slot
    static constexpr double  CREDIT = 1;   // of them, that a new answer may lose before drafts rest again
    static constexpr double  LONG = 0.98, SHORT = 0.7, PRIOR = 12;
    double                   bias() const { return (PRIOR + accepted_) / (PRIOR + expected_); }
    void                     rest(int32_t & length);   // length: of the last one for the same cause

    double  accepted_ = 0, expected_ = 0;         // draft tokens, slowly decaying sums
    double  recent_tokens_ = 0, recent_ms_ = 0;   // quickly decaying sums
    double  loss_ = 0;                            // tokens of each slot
    int32_t rest_ = 0;                            // plain steps to come
    int32_t lost_ = 0, failed_ = 0;               // of the last rest after losses and after a failure, 0: all is well
    bool    is_trial_ = false;                    // the next step with drafts is the first after a rest
};

}   // namespace dflash
