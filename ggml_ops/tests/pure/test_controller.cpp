// The controller's policy with made-up slots and pass times.

#include "engine/controller.h"

#include "check.h"
#include "quotations.h"

#include <cmath>
#include <deque>
#include <vector>

using namespace dflash;

static pass_limits limits() {
    pass_limits l;
    l.n_ctx_slot  = 1000;
    l.n_rows      = 128;
    l.n_outputs   = 80;
    l.n_draft_max = 15;
    l.max_length  = 16;
    return l;
}

static void set_drafters(controller & c, int32_t n = 1) {
    c.set_drafters(std::vector<drafter_traits>(n, { 16, false }));
}

// A pass costs 10 ms plus 1 ms per row, a drafter pass 5 ms.
static void set_costs(controller & c, int32_t n_drafters = 1) {
    set_drafters(c, n_drafters);
    for (const int32_t rows : { 1, 2, 4, 8, 16, 32, 64 }) {
        c.costs().verify.set(rows, 10.0 + rows);
    }
    for (cost_curve & draft : c.costs().drafts) {
        draft.set(4, 4.0);
        draft.set(16, 5.0);
    }
}

// What a slot holds: the cache's in an engine.
static sequence & holding(slot & s, int32_t n_past) {
    static std::deque<sequence> all;
    sequence &                  held = all.emplace_back();
    held.tokens.assign(n_past, 7);
    s.held = &held;
    return held;
}

static slot writer(int32_t id, int32_t budget = 0, int32_t n_past = 100) {
    slot s;
    s.id                   = id;
    s.state                = DFLASH_WRITING;
    s.request.budget       = budget;
    s.request.max_children = DFLASH_MAX_NODES;
    s.request.depth        = 15;
    holding(s, n_past);
    s.drafts.begin(7);
    return s;
}

// A drafter pass of `length` tokens with one candidate of this probability per position, and the tree from it.
static void draft_chain(controller & c, const step_choice & choice, slot & s, int32_t length, float prob) {
    s.drafts.drafter      = choice.drafter;
    s.drafts.block.length = length;
    s.drafts.block.top_k  = 1;
    s.drafts.block.ids.assign(length - 1, 3);
    s.drafts.block.probs.assign(length - 1, prob);
    growth_limits limits;
    limits.budget       = c.max_nodes(s, choice);
    limits.max_children = s.request.max_children;
    limits.depth        = std::min(c.max_depth(s), s.request.depth);
    limits.calibration  = &s.learned.drafters[0].calibration;
    s.drafts.tree       = grow(s.drafts.block, s.drafts.anchor, limits);
}

// The walk accepts n_accepted nodes of every slot's chain; then the pass is observed.
static void verify(controller & c, std::vector<slot> & slots, pass_record pass, int32_t n_accepted, double ms) {
    pass.verify_ms = ms;
    for (slot & s : slots) {
        s.pass.n_rows = s.drafts.tree.size();
        s.pass.walked = {};
        for (int32_t i = 0; i <= std::min(n_accepted, s.drafts.tree.size() - 1); ++i) {
            s.pass.walked.path.push_back(i);
            s.pass.walked.tokens.push_back(3);
        }
        s.count_walk(DFLASH_BY_DRAFTER);
        c.observe_walk(s);
    }
    c.observe_verify(slots, pass);
}

static void bounds() {
    const pass_limits l = limits();
    controller        c(l);
    set_drafters(c);
    std::vector<slot> slots    = { writer(0), writer(1, 1), writer(2, 5), writer(3, 0, 990), slot() };
    slots[0].request.n_predict = 4;
    step_choice choice         = c.choose_length(slots);
    CHECK(c.max_depth(slots[0]) == 3);                                          // the bonus is the fourth
    CHECK(c.max_depth(slots[1]) == 0 && c.max_nodes(slots[1], choice) == 1);    // plain
    CHECK(c.max_nodes(slots[2], choice) == 5);                                  // fixed
    CHECK(c.max_depth(slots[3]) == 8 && c.max_nodes(slots[3], choice) == 10);   // the end of the slot's context
    slots[3].request.max_children = 1;
    CHECK(c.max_nodes(slots[3], choice) == 9);   // a chain: anchor and path
    CHECK(c.max_nodes(slots[0], choice) == DFLASH_MAX_NODES);
    pass_limits few = l;
    few.n_outputs   = 12;   // four slots write, and one may reach its prompt's end
    controller narrow(few);
    set_drafters(narrow);
    choice = narrow.choose_length(slots);
    CHECK(narrow.max_nodes(slots[0], choice) == 11);
    choice = c.choose_length(slots, 9);   // cells are scarce
    CHECK(c.max_nodes(slots[0], choice) == 9 && c.max_nodes(slots[2], choice) == 5);
    choice = c.choose_length(slots, 1);   // one per anchor
    CHECK(c.max_nodes(slots[0], choice) == 4);
    few.n_outputs  = 40;   // a prompt whose probabilities are wanted gets rows, too
    slots[4].state = DFLASH_READING;
    holding(slots[4], 0);
    slots[4].request.probs_from = 1;
    choice                      = narrow.choose_length(slots);
    CHECK(narrow.max_nodes(slots[0], choice) == 24);
    few.n_outputs = 12;   // but every anchor gets one
    choice        = narrow.choose_length(slots);
    CHECK(narrow.max_nodes(slots[0], choice) == 4);
}

// A pass without a draft, of slots that have their rows of it.
static void observe_pass(controller & c, const std::vector<slot> & slots, int32_t width, double ms) {
    pass_record observed;
    observed.n_rows     = width;
    observed.trees_only = true;
    observed.verify_ms  = ms;
    c.observe_verify(slots, observed);
}

// On devices: a pass stays as wide as the last one until the extra cost equals that of a narrower graph; if rows are
// cheap, for at least four passes of one row.
static void padded_passes() {
    const pass_limits l = limits();
    controller        c(l);
    std::vector<slot> slots = { writer(0) };
    CHECK(c.tree_sizes(slots, 1000)[0] == 1);   // passes are not padded
    c.costs().verify.set_padded(true);
    c.costs().verify.set(1, 10);
    c.costs().verify.set(16, 12);
    c.costs().rebuild_ms = 2.5;
    int32_t    last      = 0;
    const auto pass      = [&](int32_t n_nodes) {   // -> its width
        slots[0].drafts.tree.nodes.resize(n_nodes, node::root(1));
        const int32_t width  = c.tree_sizes(slots, 1000)[0];
        slots[0].pass.n_rows = n_nodes;
        slots[0].pass.walked = {};
        // as expected, so that the costs stay
        observe_pass(c, slots, width, c.costs().verify.at(width) + (width == last ? 0 : c.costs().rebuild_ms));
        return last = width;
    };
    int32_t    after = 0;
    const auto stays = [&] {   // number of passes of one node that stay as wide as the last one; after: the next width
        int32_t n = 0;
        while ((after = pass(1)) == 16) {
            ++n;
        }
        return n;
    };
    CHECK(pass(1) == 1 && pass(11) == 16 && pass(13) == 16);
    CHECK(stays() == 20 && after == 1);   // 2 ms each
    CHECK(pass(16) == 16 && pass(1) == 16 && pass(12) == 16 && stays() == 20 && after == 1);
    CHECK(pass(16) == 16 && pass(4) == 16 && stays() == 19 && after == 4);   // as wide as one of them needed
    slots[0].drafts.tree.nodes.resize(9, node::root(1));
    CHECK(c.tree_sizes(slots, 12)[0] == 9);   // no room
    c.costs().verify.set(16, 29);             // rows that cost a lot
    CHECK(pass(16) == 16 && stays() == 0);
    c.costs().rebuild_ms = 70;   // as measured
    CHECK(pass(16) == 16 && stays() == 3);
}

// What a change of width costs is learned; that everything is slower for a while is none of it.
static void changes_of_width_are_told_from_slow_times() {
    const pass_limits l = limits();
    controller        c(l);
    c.costs().verify.set(4, 10);
    c.costs().verify.set(8, 12);
    c.costs().rebuild_ms    = 0.5;
    std::vector<slot> slots = { writer(0) };
    const auto        run   = [&](int n, double slower) {
        for (int i = 0; i < n; ++i) {
            const int32_t rows   = i / 2 % 2 == 0 ? 4 : 8;   // each width twice
            slots[0].pass.n_rows = rows;
            observe_pass(c, slots, rows, slower * (rows == 4 ? 10 : 12) + (i % 2 == 0 ? 1.5 : 0));
        }
    };
    run(400, 1);
    CHECK(std::fabs(c.costs().rebuild_ms - 1.5) < 0.2);
    run(60, 1.5);
    CHECK(c.costs().rebuild_ms < 2.5);
    run(400, 1.5);
    CHECK(std::fabs(c.costs().rebuild_ms - 1.5) < 0.2);
}

// Several passes in one say nothing of the cost of one, unless nothing is known.
static void split_passes_teach_no_costs() {
    const pass_limits l = limits();
    for (const bool known : { false, true }) {
        controller        c(l);
        std::vector<slot> slots = { writer(0), writer(1) };
        if (known) {
            set_costs(c);
        }
        slots[0].pass.n_rows = 16;
        slots[1].pass.n_rows = 4;
        pass_record pass;
        pass.n_rows     = 20;
        pass.trees_only = pass.is_split = true;
        pass.verify_ms                  = 10.0 + 16 + 10.0 + 4;
        const double before = c.costs().verify.at(20), rebuild_ms = c.costs().rebuild_ms;
        for (int i = 0; i < 50; ++i) {
            c.observe_verify(slots, pass);
        }
        CHECK((c.costs().verify.at(20) == before && c.costs().rebuild_ms == rebuild_ms) == known);
    }
}

static void reasons_without_choice() {
    pass_limits l = limits();
    l.max_length  = 0;
    controller        c(l);
    std::vector<slot> slots  = { writer(0, 1) };
    step_choice       choice = c.choose_length(slots);
    CHECK(choice.length == 1 && c.reason() == reason::no_drafter);
    c.choose_nodes(slots, { choice, {} });
    CHECK(slots[0].drafts.reason == reason::no_drafter && slots[0].drafts.tree.size() == 1);
    l = limits();
    c.set_drafters({ { 16, false } });
    choice = c.choose_length(slots);
    CHECK(choice.length == 1 && c.reason() == reason::off);
    c.choose_nodes(slots, { choice, {} });
    CHECK(slots[0].drafts.reason == reason::off);
}

// One step: drafts of `length` tokens, each with probability `prob`. Returns the next pass, with its rows. failing:
// the drafter whose passes fail.
static pass_record draft_step(controller & c, std::vector<slot> & slots, const pass_record & last, float prob,
    double draft_ms, int32_t failing = -1) {
    for (slot & s : slots) {
        s.drafts.begin(7);
    }
    pass_record next;
    next.choice     = c.choose_length(slots);
    next.trees_only = true;
    if (next.choice.length > 1 && next.choice.drafter == failing) {
        c.observe_failure(slots, next, failing, "no memory");
    } else if (next.choice.length > 1) {
        for (slot & s : slots) {
            draft_chain(c, next.choice, s, next.choice.length, prob);
        }
        const int32_t n_slots = (int32_t) slots.size();
        next.draft_ms         = c.observe_draft(last, next.choice, n_slots, n_slots, draft_ms);
    }
    next.expected_tokens = c.choose_nodes(slots, next);
    for (const slot & s : slots) {
        next.n_rows += s.drafts.tree.size();
    }
    return next;
}

// The second drafter's passes cost a fifth: it drafts once both are known, and the first one only now and then.
static void the_better_of_two_drafters() {
    const pass_limits l = limits();
    controller        c(l);
    set_costs(c, 2);
    c.costs().drafts[1].set(4, 0.8);
    c.costs().drafts[1].set(16, 1.0);
    c.costs().fixed         = true;
    std::vector<slot> slots = { writer(0) };
    pass_record       next;
    for (int i = 0; i < 64; ++i) {
        next = draft_step(c, slots, next, 0.9f, 0);
        verify(c, slots, next, 9, 10.0 + next.n_rows);
    }
    CHECK(c.counts().drafters[1] > 55 && c.counts().drafters[0] >= 2);
    slots[0].request.block_accept = true;   // for which neither has a lattice
    c.set_drafters({ { 16, true }, { 16, false } });
    for (int i = 0; i < 4; ++i) {
        CHECK(c.choose_length(slots).drafter == 0);
    }
}

// The first of two drafters fails at every try: the other one drafts, and the first is tried ever less often.
static void a_drafter_that_fails_gives_way(int32_t budget) {
    const pass_limits l = limits();
    controller        c(l);
    set_costs(c, 2);
    std::vector<slot> slots = { writer(0, budget) };
    pass_record       next;
    for (int i = 0; i < 300; ++i) {
        next = draft_step(c, slots, next, 0.9f, 5.0, 0);
        verify(c, slots, next, 9, 10.0 + next.n_rows);
    }
    CHECK(c.counts().drafters[0] == 0 && c.counts().drafters[1] > 250);
    CHECK(c.counts().reasons.at(reason::failed) >= 3 && c.counts().reasons.at(reason::failed) <= 6);
    CHECK(c.drafter_failure() == "no memory");
}

// The other one drafts in the next step; where both fail, drafts rest.
static void a_failure_rests_no_other_drafter() {
    const pass_limits l = limits();
    controller        c(l);
    set_costs(c, 2);
    std::vector<slot> slots = { writer(0) };
    pass_record       next  = draft_step(c, slots, {}, 0.9f, 5.0, 0);
    CHECK(c.reason() == reason::failed && !c.switch_state().resting());
    next = draft_step(c, slots, next, 0.9f, 5.0, 1);
    CHECK(next.choice.drafter == 1 && next.choice.length > 1);
    CHECK(c.reason() == reason::failed && c.switch_state().resting());
    next = draft_step(c, slots, next, 0.9f, 5.0);
    CHECK(next.choice.length == 1 && c.reason() == reason::plain);
}

// The first of two drafters has nothing to propose: that is known after its first block.
static void empty_blocks_are_worth_nothing() {
    const pass_limits l = limits();
    controller        c(l);
    set_costs(c, 2);
    std::vector<slot> slots  = { writer(0) };
    slot_drafts &     drafts = slots[0].drafts;
    pass_record       last;
    for (int i = 0; i < 40; ++i) {
        drafts.begin(7);
        pass_record next;
        next.choice     = c.choose_length(slots);
        next.trees_only = true;
        if (next.choice.drafter == 1) {
            draft_chain(c, next.choice, slots[0], next.choice.length, 0.9f);
        }
        drafts.drafter       = next.choice.drafter;
        drafts.n_denoised    = next.choice.length;
        next.draft_ms        = c.observe_draft(last, next.choice, 1, 1, 5.0);
        next.expected_tokens = c.choose_nodes(slots, next);
        next.n_rows          = drafts.tree.size();
        verify(c, slots, next, 9, 10.0 + next.n_rows);
        last = next;
    }
    CHECK(c.counts().drafters[0] >= 1 && c.counts().drafters[0] <= 5);
}

// A rest is nobody's turn: whose is next stays as it is.
static void rests_are_nobodys_turns() {
    const pass_limits l = limits();
    controller        c(l);
    set_costs(c, 2);
    c.costs().fixed            = true;
    std::vector<slot> slots    = { writer(0) };
    int               n_rested = 0;
    pass_record       next;
    for (int i = 0; i < 300; ++i) {
        const bool    rested = c.reason() == reason::plain;
        const int32_t before = next.choice.drafter;
        next                 = draft_step(c, slots, next, 0.3f, 5.0);
        if (rested && c.reason() == reason::plain) {
            CHECK(next.choice.drafter == before);
            ++n_rested;
        }
        verify(c, slots, next, 0, 10.0 + next.n_rows);
    }
    CHECK(n_rested > 150);
}

static void drafts_that_pay() {
    const pass_limits l = limits();
    controller        c(l);
    set_costs(c);
    std::vector<slot> slots = { writer(0), writer(1) };
    pass_record       next;
    for (int i = 0; i < 40; ++i) {
        next = draft_step(c, slots, next, 0.95f, 5.0);
        verify(c, slots, next, 15, 10.0 + next.n_rows);
        CHECK(c.reason() == reason::pays && next.n_rows > 12 && next.n_rows <= 32);
    }
    CHECK(c.last_choice().length == 16 && c.counts().lengths.at(16) > 35);
    CHECK(c.counts().reasons.at(reason::pays) == 40);
    CHECK(slots[0].stats.n_passes == 40 && slots[0].stats.n_accepted > 200);
}

static void drafts_that_lose() {
    const pass_limits l = limits();
    controller        c(l);
    set_costs(c);
    std::vector<slot> slots = { writer(0) };
    pass_record       next;
    for (int i = 0; i < 200; ++i) {
        next = draft_step(c, slots, next, 0.3f, 5.0);
        verify(c, slots, next, 0, 10.0 + next.n_rows);
    }
    const auto & reasons = c.counts().reasons;
    CHECK(reasons.at(reason::plain) > 150);
    CHECK(c.switch_state().resting() && c.counts().nodes.at(1) > 150);
    // a new answer is tried at once
    slots[0].request.greedy = true;
    c.begin_answer(slots[0]);
    CHECK(c.choose_length(slots).length > 1 && c.reason() == reason::pays);
}

// What several passes take counts, though one of that width is known to take less.
static void drafts_that_lose_in_split_passes() {
    const pass_limits l = limits();
    controller        c(l);
    set_costs(c);
    std::vector<slot> slots = { writer(0), writer(1) };
    pass_record       next;
    for (int i = 0; i < 200; ++i) {
        next          = draft_step(c, slots, next, 0.9f, 5.0);
        next.is_split = next.n_rows > 2;
        verify(c, slots, next, next.is_split ? 5 : 0, (next.is_split ? 6 : 1) * (10.0 + next.n_rows));
    }
    CHECK(c.switch_state().resting());
}

// A drafter that always fails rests, too, unless a request's own budget asks for its blocks. Once it works again
// nothing is said of its failure.
static void a_drafter_that_fails_rests() {
    const pass_limits l = limits();
    controller        c(l);
    set_costs(c);
    std::vector<slot> slots = { writer(0) };
    pass_record       next;
    const auto        fail = [&](int n) {
        for (int i = 0; i < n; ++i) {
            next = draft_step(c, slots, next, 0.9f, 5.0, 0);
            verify(c, slots, next, 0, 10.0 + next.n_rows);
        }
        return c.counts().reasons.at(reason::failed);
    };
    const auto n_failed = fail(200);
    CHECK(n_failed >= 3 && n_failed < 10 && c.counts().reasons.at(reason::plain) == 200 - n_failed);   // one per step
    slots[0].request.budget = 8;
    CHECK(fail(10) == n_failed + 10);
    slots[0].request.budget = 0;
    c.begin_answer(slots[0]);
    next = draft_step(c, slots, next, 0.9f, 5.0);
    CHECK(c.reason() == reason::pays && c.drafter_failure().empty());
}

// A pass that only read what earlier ones left is no drafts' failure.
static void failures_beside_drafts() {
    const pass_limits l = limits();
    controller        c(l);
    set_costs(c, 2);
    std::vector<slot> slots = { writer(0) };
    const pass_record next  = draft_step(c, slots, {}, 0.9f, 5.0);
    c.observe_failure(slots, next, 1 - next.choice.drafter, "the other one");
    CHECK(c.drafter_failure() == "the other one" && c.reason() == reason::pays);
    CHECK(!c.switch_state().resting() && c.counts().reasons.count(reason::failed) == 0);
}

// Fixed budgets say nothing about what the controller would have drafted.
static void fixed_budgets_teach_the_switch_nothing() {
    const pass_limits l = limits();
    controller        c(l);
    set_costs(c);
    std::vector<slot> slots = { writer(0, 16) };
    pass_record       next;
    for (int i = 0; i < 40; ++i) {
        next = draft_step(c, slots, next, 0.3f, 50.0);
        verify(c, slots, next, 0, 10.0 + next.n_rows);
        CHECK(c.reason() == reason::fixed);
    }
    CHECK(c.switch_state().rate() == 0 && !c.switch_state().resting());
}

// The first drafted step after a rest pays for a graph of another width and for the taps of the rest. Drafts that gain
// go on all the same, after one slow pass of either kind as well.
static void a_trial_is_not_charged_for_the_rest() {
    const pass_limits l = limits();
    controller        c(l);
    set_costs(c);
    std::vector<slot> slots = { writer(0) };
    pass_record       next;
    for (int i = 0; i < 100 || c.switch_state().resting(); ++i) {
        next = draft_step(c, slots, next, 0.3f, 5.0);
        verify(c, slots, next, 0, 10.0 + next.n_rows);
    }
    c.begin_answer(slots[0]);
    slots[0].learned = {};
    slots[0].drafts.begin(7);
    step_choice choice = c.choose_length(slots);
    CHECK(choice.length > 1);
    draft_chain(c, choice, slots[0], choice.length, 0.9f);
    pass_record trial{ choice, c.observe_draft(next, choice, 1, 500, 90.0) };
    trial.trees_only      = true;
    trial.expected_tokens = c.choose_nodes(slots, trial);
    trial.n_rows          = slots[0].drafts.tree.size();
    verify(c, slots, trial, 8, 70.0);
    CHECK(!c.switch_state().resting());
    for (int i = 0; i < 20; ++i) {
        next = draft_step(c, slots, trial, 0.9f, i == 5 ? 1e4 : 5.0);
        verify(c, slots, next, 8, i == 10 ? 1e4 : 10.0 + next.n_rows);
        CHECK(c.reason() == reason::pays && !c.switch_state().resting());
    }
}

// Drafts that gain a little: a plain step now and then, but rarely if that needs a new graph.
static void refreshes(bool on_device) {
    const pass_limits l = limits();
    controller        c(l);
    set_drafters(c);
    c.costs().verify.set_padded(on_device);
    for (const int32_t rows : { 1, 2, 4, 8, 16, 32, 64 }) {
        c.costs().verify.set(rows, 2.0 + 8.0 * rows);
    }
    c.costs().drafts[0].set(4, 0.5);
    c.costs().drafts[0].set(16, 0.5);
    std::vector<slot> slots = { writer(0) };
    pass_record       next;
    for (int i = 0; i < 100 * (on_device ? 16 : 1); ++i) {
        next = draft_step(c, slots, next, 0.9f, 0.5);
        if (c.reason() == reason::refresh) {
            CHECK(next.n_rows == 1 && c.tree_sizes(slots, 1000)[0] == 1);   // like plain decoding
        }
        verify(c, slots, next, 1, 2.0 + 8.0 * next.n_rows);
    }
    CHECK(c.counts().reasons.at(reason::refresh) >= 2 && c.counts().reasons.at(reason::refresh) <= 4);
}

// For tests of engines: actual times of passes change nothing.
static void fixed_costs() {
    const pass_limits l = limits();
    controller        c(l);
    set_costs(c);
    c.costs().fixed         = true;
    std::vector<slot> slots = { writer(0) };
    pass_record       next;
    for (int i = 0; i < 20; ++i) {
        next = draft_step(c, slots, next, 0.95f, 5000.0);
        verify(c, slots, next, 15, 1000.0 * next.n_rows);
        c.observe_other(1000);
    }
    CHECK(c.reason() == reason::pays && c.costs().verify.at(16) == 26 && c.costs().drafts[0].at(16) == 5);
    CHECK(c.costs().other_ms == 0);
}

// One step that stalled (another process) does not count as what steps take.
static void steps_that_stall() {
    const pass_limits l = limits();
    controller        c(l);
    set_costs(c);
    c.observe_other(2000);
    CHECK(c.costs().other_ms < 0.2);
    const auto observe = [&](int n, double ms) {
        for (int i = 0; i < n; ++i) {
            c.observe_other(ms);
        }
        return c.costs().other_ms;
    };
    CHECK(std::fabs(observe(100, 0.8) - 0.8) < 0.02);
    CHECK(observe(1, 2000) < 1);
    CHECK(std::fabs(observe(200, 10) - 10) < 0.1);   // but steps that take longer do
}

// On devices: 8 or whole blocks; a block stays as long as the last one while that is cheap.
static void block_lengths() {
    const pass_limits l = limits();
    controller        c(l);
    set_costs(c);   // 16 tokens cost a millisecond more than 4
    c.set_drafters({ { 16, false, true } });
    std::vector<slot> slots  = { writer(0, 5) };
    const auto        length = [&](int32_t depth) {
        slots[0].request.max_children = 1;
        slots[0].request.depth        = depth;
        return c.choose_length(slots).length;
    };
    CHECK(length(4) == 8 && length(3) == 8);
    slots[0].request.budget = 12;
    CHECK(length(11) == 16);
    for (int i = 0; i < 23; ++i) {   // two thirds of a millisecond each, until they cost as much as four blocks of 4
        CHECK(length(4) == 16);
    }
    length(4);
    CHECK(length(4) == 8);
}

static void fixed_budgets() {
    pass_limits l = limits();
    l.n_outputs   = 14;
    controller c(l);
    set_costs(c);
    std::vector<slot> slots  = { writer(0, 10), writer(1, 10), writer(2) };
    step_choice       choice = c.choose_length(slots);
    CHECK(choice.length > 1 && c.reason() == reason::fixed);
    for (slot & s : slots) {
        draft_chain(c, choice, s, 16, 0.9f);
    }
    c.choose_nodes(slots, { choice, c.observe_draft({}, choice, 3, 3, 5.0) });
    // both give way alike to the third slot's anchor
    CHECK(slots[0].drafts.tree.size() == 7 && slots[1].drafts.tree.size() == 6 && slots[2].drafts.tree.size() == 1);
    CHECK(slots[0].drafts.reason == reason::fixed && slots[2].drafts.reason == reason::pays);
    std::vector<slot> alone = { writer(0, 10) };
    CHECK(c.choose_length(alone).length == 16);   // a tree: all of the block
    alone[0].request.max_children = 1;
    CHECK(c.choose_length(alone).length == 10);   // a chain of ten
    l.n_outputs = 3;                              // one per anchor, and no more
    choice      = c.choose_length(slots);
    for (slot & s : slots) {
        draft_chain(c, choice, s, 16, 0.9f);
    }
    c.choose_nodes(slots, { choice, {} });
    CHECK(slots[0].drafts.tree.size() == 1 && slots[1].drafts.tree.size() == 1 && slots[2].drafts.tree.size() == 1);
}

static void quotations_and_failures() {
    const pass_limits l = limits();
    controller        c(l);
    set_costs(c);
    std::vector<slot> slots  = { writer(0) };
    step_choice       choice = c.choose_length(slots);
    c.observe_failure(slots, { choice, {} }, 0, "no memory");
    CHECK(c.drafter_failure() == "no memory" && c.reason() == reason::failed);
    c.choose_nodes(slots, { choice, {} });
    CHECK(slots[0].drafts.reason == reason::failed && slots[0].drafts.tree.size() == 1);
    choice = c.choose_length(slots);   // nothing was denoised, but the text repeats itself
    slots[0].drafts.tree.nodes.push_back({ 5, 0, 1, -1, 0.0f, 0.9f, false, 1 });
    slots[0].drafts.tree.nodes.push_back({ 5, 1, 2, -1, 0.0f, 0.8f, false, 2 });
    c.choose_nodes(slots, { choice, {} });
    CHECK(slots[0].drafts.reason == reason::quotes && slots[0].drafts.tree.size() == 3);
}

// A certain quotation is worth more than what the drafter would add; an uncertain one is not.
static void quotations_that_suffice() {
    const pass_limits l = limits();
    controller        c(l);
    set_costs(c);
    std::vector<slot> slots = { writer(0), writer(1) };
    pass_record       next;
    for (int i = 0; i < 10; ++i) {
        next = draft_step(c, slots, next, 0.9f, 5.0);
        verify(c, slots, next, 9, 10.0 + next.n_rows);
    }
    const auto choose = [&](float prob, int32_t n_tokens) {
        for (slot & s : slots) {
            s.drafts.begin(7);
        }
        slots[0].drafts.quoted = chain_quotation(std::vector<int32_t>(n_tokens, 3), prob);
        return c.choose_length(slots).length;
    };
    CHECK(choose(0.99f, 60) == 1 && c.reason() == reason::quotes);
    CHECK(choose(0.5f, 60) > 1 && c.reason() == reason::pays);
    CHECK(choose(0.99f, 2) > 1 && choose(0.99f, 0) > 1);
    slots[1].request.budget = 8;   // it wants its block in any case
    CHECK(choose(0.99f, 60) > 1 && c.reason() == reason::fixed);
}

static void padding() {
    pass_limits l = limits();
    l.equal_trees = true;
    controller c(l);
    set_costs(c);
    std::vector<slot> slots = { writer(0), writer(1), writer(2) };
    const auto        sizes = [&](int32_t room = INT32_MAX) { return c.tree_sizes(slots, room); };
    using all               = std::vector<int32_t>;
    CHECK(sizes() == all({ 1, 1, 1 }));
    slots[1].drafts.tree.nodes.resize(3, slots[1].drafts.tree.nodes[0]);
    slots[2].drafts.tree.nodes.resize(4, slots[2].drafts.tree.nodes[0]);
    CHECK(sizes() == all({ 4, 4, 4 }));   // one pass of 12 rows instead of three passes
    CHECK(sizes(12) == all({ 4, 4, 4 }) && sizes(11) == all({ 1, 3, 4 }));   // cells for 12
    holding(slots[2], l.n_ctx_slot - 2);
    CHECK(sizes() == all({ 1, 3, 4 }));   // no room for the padding
    holding(slots[2], 10);
    for (const int32_t rows : { 8, 16 }) {
        c.costs().verify.set(rows, 500.0);
    }
    CHECK(sizes() == all({ 1, 3, 4 }));   // costs more than three passes
    CHECK(!c.splits({ 1, 3, 4 }));
    l.splits_trees = true;
    CHECK(c.splits({ 1, 3, 4 }) && !c.splits({ 4, 0, 4 }) && !c.splits({ 0, 0, 0 }));
    l.equal_trees = false;
    CHECK(sizes() == all({ 1, 3, 4 }));
    slots[1].state = DFLASH_READING;
    CHECK(sizes() == all({ 1, 0, 4 }));
}

// A new answer starts with a faded memory of the last one of its kind.
static void memory() {
    const pass_limits l = limits();
    controller        c(l);
    slot              s = writer(0);
    c.begin_answer(s);
    for (int i = 0; i < 200; ++i) {
        s.learned.drafters[0].calibration.observe(0.9f, true, 1, false);
    }
    s.stats.n_drafted = 200;
    c.end_answer(s);
    slot next = writer(1), greedy = writer(2);
    greedy.request.greedy = true;
    c.begin_answer(next);
    c.begin_answer(greedy);
    CHECK(next.learned.drafters[0].calibration.apply(0.9f, true, 1) < 0.5f);
    CHECK(next.learned.drafters[0].calibration.apply(0.9f, true, 1) >
          s.learned.drafters[0].calibration.apply(0.9f, true, 1));
    CHECK(std::fabs(greedy.learned.drafters[0].calibration.apply(0.9f, true, 1) - 0.9f) < 1e-6);
}

// Cells are short: all trees give way alike, a drawn chain whole, no anchor.
static void trees_that_are_cut() {
    std::vector<slot> slots = { writer(0), writer(1), writer(2) };
    const auto        sizes = [&](int32_t room) {
        for (slot & s : slots) {
            s.drafts.begin(7);
            s.drafts.tree.nodes.resize(5, node::root(7));
        }
        controller::cut_trees(slots, room);
        return std::vector<int32_t>{ slots[0].drafts.tree.size(), slots[1].drafts.tree.size(),
            slots[2].drafts.tree.size() };
    };
    CHECK(sizes(15) == std::vector<int32_t>({ 5, 5, 5 }));
    CHECK(sizes(12) == std::vector<int32_t>({ 4, 4, 4 }));
    CHECK(sizes(8) == std::vector<int32_t>({ 3, 3, 2 }));
    CHECK(sizes(1) == std::vector<int32_t>({ 1, 1, 1 }));
    slots[2].request.block_accept = true;
    CHECK(sizes(12) == std::vector<int32_t>({ 4, 4, 1 }));
    CHECK(sizes(15) == std::vector<int32_t>({ 5, 5, 5 }));
}

// Only a drafter that can look back less far is asked to.
static void windows() {
    const pass_limits l = limits();
    for (const bool able : { false, true }) {
        controller c(l);
        c.set_drafters({ { 16, false, false, able } });
        slot s = writer(0, 0, 900);
        for (int32_t i = 0; i < 20; ++i) {
            s.drafts.begin(7);
            const int32_t window = c.choose_window(s, 0, 4096);
            CHECK(window == draft_window::ALL || able);
            s.drafts.n_denoised = 16;
            s.pass.walked.path.assign(window == draft_window::ALL ? 1 : 9, 0);
            c.observe_walk(s);
        }
        CHECK((s.learned.drafters[0].window.usual() == 256) == able);
        CHECK(c.counts().windows.count(256) == (able ? 1u : 0u));
    }
}

int main() {
    bounds();
    windows();
    padded_passes();
    changes_of_width_are_told_from_slow_times();
    split_passes_teach_no_costs();
    reasons_without_choice();
    the_better_of_two_drafters();
    a_drafter_that_fails_gives_way(0);
    a_drafter_that_fails_gives_way(8);
    a_failure_rests_no_other_drafter();
    empty_blocks_are_worth_nothing();
    rests_are_nobodys_turns();
    drafts_that_pay();
    drafts_that_lose();
    drafts_that_lose_in_split_passes();
    a_drafter_that_fails_rests();
    failures_beside_drafts();
    fixed_budgets_teach_the_switch_nothing();
    a_trial_is_not_charged_for_the_rest();
    refreshes(false);
    refreshes(true);
    fixed_costs();
    steps_that_stall();
    block_lengths();
    fixed_budgets();
    quotations_and_failures();
    quotations_that_suffice();
    padding();
    memory();
    trees_that_are_cut();
    return TEST_RESULT;
}
