// The engine's policy (docs/budget.md): whether to draft, how long a block, how many nodes, the reason, and what is
// learned from each pass. It works on slots and pass times alone, without llama.cpp: tests/pure/test_controller.cpp.

#pragma once

#include "budget/choice.h"
#include "budget/costs.h"
#include "budget/steady_size.h"
#include "engine/slot.h"
#include "engine/tree_padding.h"
#include "target/pass_limits.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace dflash {

// What is chosen for the next pass before its trees grow.
struct step_choice {
    int32_t drafter    = 0;
    int32_t length     = 1;       // of the drafter's blocks: the anchor and the tokens that they propose; 1: none
    int32_t tree_rows  = 0;       // most nodes of all trees together
    double  n_attended = 0;       // positions that its rows attend to, mean of the writing slots
    bool    is_fixed   = false;   // a request's own budget decides the length
};

// A target pass, from what is chosen for it to what it took. The step fills it in, phase by phase.
struct pass_record {
    step_choice           choice;
    std::optional<double> draft_ms;                  // of the drafter pass before it, none: the drafter rested
    double                expected_tokens = 0;       // that its trees yield
    int32_t               n_rows          = 0;       // with padding
    bool                  trees_only      = false;   // no prompt rows are in it
    bool                  is_split        = false;   // llama.cpp computes its trees in several passes
    double                verify_ms       = 0;
};

// The slots whose trees may have more than an anchor, and what they ask of a drafter.
struct drafting_slots {
    std::vector<const slot *> all, automatic;     // automatic: those that leave their budget to the controller
    int32_t                   max_length   = 1;   // of the blocks, with the anchor, that one of them can use
    int32_t                   fixed_length = 1;   // the longest that a fixed budget asks for, 1: there is none
};

// What the controller has to know of a drafter.
struct drafter_traits {
    int32_t max_length = 1;       // of its drafts, with the anchor
    bool    lattice    = false;   // it can draft for block verification
    bool    pads       = false;   // its blocks come in few lengths, as a device wants them
    bool    windows    = false;   // its blocks may look back less far than it holds
};

class controller {
  public:
    // limits: must outlive this, and may change until the first step.
    explicit controller(const pass_limits & limits) : limits_(limits) {}
    // At most MAX_DRAFTERS, in order of preference. Once.
    void set_drafters(std::vector<drafter_traits> drafters);

    // an answer
    // Starts with what the last one of its kind learned. n_others: slots that write already.
    void begin_answer(slot & s, int32_t n_others = 0);
    void end_answer(const slot & s);

    // what a slot that writes may have
    int32_t max_depth(const slot & s) const;                               // draft tokens on a path
    int32_t max_nodes(const slot & s, const step_choice & choice) const;   // nodes of its next tree

    // the choices of one step, in the order of its phases
    std::vector<int32_t> tree_sizes(const std::vector<slot> & slots, int32_t room) const {
        return padding_.sizes(slots, room);
    }
    bool splits(const std::vector<int32_t> & tree_sizes) const { return padding_.splits(tree_sizes); }
    // One length for the blocks of all slots. room: nodes that all trees together may have.
    step_choice choose_length(const std::vector<slot> & slots, int32_t room = INT32_MAX);
    // How far back the next block of a drafter looks for a slot, of the n_ctx positions that it may hold.
    int32_t choose_window(slot & s, int32_t drafter, int32_t n_ctx);
    // Cuts every slot's tree, grown to its limit, to the size that pays best over all slots, and sets the reason.
    // Returns the tokens that the trees are expected to yield. next: has its choice, and the time of its drafter pass.
    double choose_nodes(std::vector<slot> & slots, const pass_record & next);

    // Cells ran short: cuts the last trees until all together take `room` rows. Anchors stay.
    static void cut_trees(std::vector<slot> & slots, int32_t room);

    // results
    // A target pass, after its walk and before its commit.
    void observe_verify(const std::vector<slot> & slots, const pass_record & pass);
    void observe_walk(slot & s);   // of a tree
    // The drafter pass after the target pass `last`: blocks for n_slots, n_injected rows of taps. Returns the
    // milliseconds that count.
    double observe_draft(
        const pass_record & last, const step_choice & choice, int32_t n_slots, int32_t n_injected, double ms);
    // A pass of a drafter failed: the one that `next` was to have, or one that only read what target passes left.
    void observe_failure(
        const std::vector<slot> & slots, const pass_record & next, int32_t drafter, const std::string & why);
    void observe_other(double ms);   // time of a step beyond its passes

    pass_costs &       costs() { return costs_; }
    const pass_costs & costs() const { return costs_; }
    double             plain_rate(int32_t n_slots, double n_attended) const;   // tokens per ms of plain decoding
    // Of a step that only verifies the anchors of the slots that write, 0: no pass was measured yet.
    double plain_ms(const std::vector<slot> & slots, double n_attended) const;

    // for statistics: how often each choice was made, and the last one
    struct choice_counts {
        std::map<int32_t, int64_t>        nodes, lengths, windows;       // windows: 0 is all that is held
        int64_t                           drafters[MAX_DRAFTERS] = {};   // passes of each
        std::map<dflash::reason, int64_t> reasons;
    };
    const choice_counts & counts() const { return counts_; }
    const length_choice & last_choice() const { return last_choice_; }   // a drafter's, taken or not
    const draft_switch &  switch_state() const { return switch_; }
    dflash::reason        reason() const { return reason_; }
    // Why a drafter's pass failed, until one with blocks succeeds; empty: none did.
    const std::string & drafter_failure() const;

  private:
    step_choice          plain_choice(const std::vector<slot> & slots, int32_t room) const;
    double               counted_ms(const pass_record & pass, double verify_ms, double n_cells) const;
    void                 set_reason(dflash::reason why);
    dflash::reason       reason_of(const slot & s, const pass_record & next) const;
    std::vector<int32_t> block_lengths(int32_t n_max, int32_t drafter) const;
    int32_t              tree_outputs(const std::vector<slot> & slots) const;
    drafting_slots       drafting_of(const std::vector<slot> & slots, const step_choice & choice) const;
    bool                 may_draft(int32_t drafter, const std::vector<slot> & slots) const;
    std::vector<int32_t> drafters_of(const std::vector<slot> & slots) const;
    length_choice        best_of(int32_t drafter, const drafting_slots & drafting, const step_choice & choice) const;
    length_choice        choose_drafter(
               const std::vector<slot> & slots, const drafting_slots & drafting, const step_choice & choice);
    int32_t wanted_length(const drafting_slots & drafting, const length_choice & best, const step_choice & choice);
    int32_t auto_length(const length_choice & best, double plain_rate);
    int32_t padded_length(int32_t length, int32_t drafter);
    bool quotes_suffice(const drafting_slots & drafting, const length_choice & best, const step_choice & choice) const;
    void learn_values(slot & s) const;
    void learn_costs(const pass_record & pass, double n_cells, double ms, double rebuild_ms);
    void learn_rebuild(bool rebuilds, double excess_ms);
    double cut_automatic(
        const std::vector<slot *> & automatic, int32_t n_others, int32_t n_fixed, const pass_record & next) const;

    const pass_limits &         limits_;
    std::vector<drafter_traits> drafters_;
    pass_costs                  costs_;
    experience                  last_learned_[2];   // of the last answers, sampled and greedy

    int32_t      last_rows_       = 0;       // of the last target pass, whose graph is kept
    bool         was_drafted_     = false;   // a drafter pass came before it
    double       usual_draft_ms_  = 0;       // of the last drafter pass, without the injected rows of a rest
    double       usual_excess_ms_ = 0;       // of passes as wide as the one before them, over their width's time
    tree_padding padding_{ limits_, costs_ };
    steady_size  block_length_[MAX_DRAFTERS];   // where blocks come in few lengths

    draft_switch          switch_;
    drafter_turns         turns_[2];     // of greedy requests at [1]
    drafter_turns         next_turns_;   // one of them as it will be if the step that is chosen has drafts
    std::optional<size_t> next_kind_;    // which one; none: fixed budgets alone
    drafter_rests         rests_;
    int32_t               n_since_plain_ = 0;   // drafted steps since a plain one
    length_choice         last_choice_;
    dflash::reason        reason_ = dflash::reason::none_yet;   // of the last choice
    choice_counts         counts_;
    std::string           failures_[MAX_DRAFTERS];   // of each drafter since it last drafted; empty: none
};

}   // namespace dflash
