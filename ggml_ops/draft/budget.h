// How many nodes the next trees may have: pure functions and small running statistics, no llama.cpp types.
//
// A step costs T_draft + T_verify(rows) + T_other and yields one token per slot plus the values of the verified nodes.
// Real cost curves are stepped and not convex, so every count is scanned.

#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace dflash {

// Rows that a pass over so many is padded to where devices compute: there some rows more cost little, and a graph of
// another shape much.
int32_t padded_width(int32_t rows);

// Milliseconds of a pass by its width (rows) and by what its rows attend to: measured points with an empty context,
// linear in between, plus a price per attended cell. Kept fresh by a moving average.
class cost_curve {
  public:
    void set(int32_t rows, double ms) { points_[rows] = ms; }
    void set_per_cell(double ms) { per_cell_ = ms; }
    // Passes are padded: those of one padded_width() cost the same.
    void    set_padded(bool padded) { padded_ = padded; }
    bool    padded() const { return padded_; }
    int32_t width(int32_t rows) const { return padded_ ? padded_width(rows) : rows; }
    // A pass that ran. cells: positions that its rows attended to, summed over the rows.
    void                              observe(int32_t rows, double cells, double ms);
    double                            at(int32_t rows, double cells = 0) const;   // 0 if nothing was ever set
    double                            per_cell() const { return per_cell_; }
    bool                              empty() const { return points_.empty(); }
    const std::map<int32_t, double> & points() const { return points_; }

  private:
    std::map<int32_t, double> points_;
    bool                      padded_   = false;
    double                    per_cell_ = 0;
    double excess_ = 0, square_ = 0;   // of the regression behind per_cell_: sums of excess * cells and cells^2, fading
};

struct node_choice {
    int32_t              n_nodes = 0;   // over all slots, anchors counted
    double               gain    = 0;   // expected tokens of the step
    double               rate    = 0;   // expected tokens per ms
    std::vector<int32_t> per_slot;      // nodes per slot, anchor counted
};

// llama.cpp keeps the graph of the last pass: another width costs its rebuilding.
struct last_pass {
    int32_t rows       = 0;
    double  rebuild_ms = 0;
};

// values[s]: the draft nodes' values of slot s in falling order (the anchor, worth 1, not among them).
// context: positions that a row attends to, mean of the slots. fixed_ms: T_draft + T_other of the step. max_rows bounds
// the pass. Counts are those of measured passes, multiples of 4 (the row groups of the CPU's matrix products) and all
// there is, so that shapes recur; where passes are padded, whole widths.
node_choice choose_nodes(const std::vector<std::vector<float>> & values, const cost_curve & verify, double context,
    double fixed_ms, int32_t max_rows, last_pass last = {});

// What the trees of one slot were worth lately, by the length of the block that they grew from: decides how much of the
// block to denoise next.
class value_profile {
  public:
    // A tree grown as large as it may get, from a block of `length` tokens: depths and values of its draft nodes in
    // falling order of value. It also tells what the shorter ones of `lengths` would have given.
    void observe(int32_t length, const std::vector<int32_t> & lengths, const std::vector<int32_t> & depths,
        const std::vector<float> & values);
    // Expected values, falling, of the draft nodes that a block of `length` tokens gives; null: not known (any more).
    const std::vector<float> * at(int32_t length) const;

  private:
    static constexpr int32_t STALE = 32;   // observations of shorter blocks after which a longer one is unknown again
    // Value of a block's last node from which on a longer one is unknown at once.
    static constexpr float GOOD_END = 0.4f;
    static constexpr float NEWEST   = 0.5f;   // weight of the newest tree: easy and hard stretches of a text take turns
    struct mean {
        std::vector<float> values;
        int32_t            age = 0;
    };
    std::map<int32_t, mean> lengths_;
};

struct length_choice {
    int32_t length = 1;   // block tokens to denoise
    double  rate   = 0;   // expected tokens per ms, 0: not known
    double  gain   = 0;   // expected tokens of the step, all slots
    int32_t nodes  = 0;   // expected nodes of the step, all slots
};

// One block length for all slots of a drafter pass, the best of `lengths` (ascending); one that nobody knows is tried.
// 1 without slots.
length_choice choose_length(const std::vector<const value_profile *> & slots, const std::vector<int32_t> & lengths,
    const cost_curve & verify, double context, const cost_curve & draft, double other_ms, int32_t max_rows);

// Whether to draft at all: compares the tokens that drafts are expected to yield, corrected by what was accepted so
// far, with the yield of plain decoding. Where drafts lose, it rests and tries again, ever more rarely. "A user must
// never be slower than without us."
class draft_switch {
  public:
    bool draft_now();   // once per step
    // A step with drafts: its slots, the draft tokens that were accepted and that its values had led to expect, its
    // cost, and the tokens per ms of plain decoding.
    void observe(int32_t n_slots, double accepted, double expected, double ms, double plain_rate);
    void new_text();   // a new answer begins: look again, briefly
    bool resting() const { return rest_ > 0; }
    // Expected tokens per ms of drafted steps.
    double rate() const { return recent_ms_ > 0 ? (recent_certain_ + recent_expected_ * bias()) / recent_ms_ : 0; }

  private:
    static constexpr int32_t MIN_REST = 4, MAX_REST = 512;
    // Yields differ a lot from step to step, expectations little: the sums of the former reach further back.
    static constexpr double LONG = 0.98, SHORT = 0.7, PRIOR = 12;
    double                  bias() const { return (PRIOR + accepted_) / (PRIOR + expected_); }

    double accepted_ = 0, expected_ = 0;   // draft tokens, long fading sums
    // short fading sums: certain tokens, expected draft tokens, cost
    double  recent_certain_ = 0, recent_expected_ = 0, recent_ms_ = 0;
    int32_t rest_ = 0, backoff_ = 0;
};

}   // namespace dflash
