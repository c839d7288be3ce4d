#include "engine/controller.h"

#include <algorithm>
#include <iterator>
#include <numeric>

namespace dflash {

// Drafted steps between two plain ones while drafts gain little, so that the cost of plain decoding stays up to date.
// "Little": less than this over plain decoding.
static constexpr int32_t REFRESH_STEPS = 32;
static constexpr double  REFRESH_GAIN  = 1.3;
// On devices a plain step needs two new graphs, its own and that of the next step.
static constexpr int32_t PADDED_REFRESH_STEPS = 512;

void controller::set_drafters(std::vector<drafter_traits> drafters) {
    drafters_ = std::move(drafters);
    costs_.drafts.resize(drafters_.size());
}

// ---- an answer ----

void controller::begin_answer(slot & s, int32_t n_others) {
    s.learned = last_learned_[s.request.greedy];
    switch_.new_text(n_others);
    turns_[s.request.greedy].new_text();
    rests_.new_text();
}

void controller::end_answer(const slot & s) {
    if (s.stats.n_drafted > 0) {
        last_learned_[s.request.greedy] = s.learned;
        last_learned_[s.request.greedy].fade();
    }
}

// Block lengths to choose from, up to the first that holds n_max tokens.
std::vector<int32_t> controller::block_lengths(int32_t n_max, int32_t drafter) const {
    const int32_t        longest = drafters_[drafter].max_length;
    std::vector<int32_t> lengths;
    for (const int32_t length : { 4, 8, 12, 16, 24, 32, 48, 64 }) {
        lengths.push_back(std::min(length, longest));
        if (lengths.back() >= std::min(n_max, longest)) {
            break;
        }
    }
    return lengths;
}

static bool any_quotes(const std::vector<slot> & slots) {
    return std::any_of(slots.begin(), slots.end(), [](const slot & s) { return !s.drafts.quoted.empty(); });
}

// ---- what a slot may have ----

// Rows with logits that all trees together may have. Every other slot may reach its prompt's end in the next pass,
// which takes one, too; and a slot whose prompt's probabilities are wanted must make progress beside large trees.
int32_t controller::tree_outputs(const std::vector<slot> & slots) const {
    constexpr int32_t TELLING_ROWS = 16;
    int32_t           n            = limits_.n_outputs;
    for (const slot & s : slots) {
        if (!s.writing()) {
            n -= s.request.probs_from > 0 && s.state == DFLASH_READING ? TELLING_ROWS : 1;
        }
    }
    return n;
}

int32_t controller::max_depth(const slot & s) const {
    const int32_t n_room = std::min(s.n_left(), limits_.n_ctx_slot - 1 - s.n_past()) - 1;
    return s.request.budget == 1 ? 0 : std::clamp(n_room, 0, DFLASH_MAX_NODES - 1);
}

int32_t controller::max_nodes(const slot & s, const step_choice & choice) const {
    if (max_depth(s) == 0) {
        return 1;
    }
    const int32_t n_shape  = s.request.max_children > 1 ? DFLASH_MAX_NODES : 1 + max_depth(s);
    const int32_t n_budget = s.request.budget == 0 ? DFLASH_MAX_NODES : s.request.budget;
    // Siblings take cells of the shared cache until the walk is over.
    const int32_t n_cells = limits_.n_ctx_slot - s.n_past();
    return std::min({ n_budget, n_shape, limits_.n_nodes, choice.tree_rows, n_cells });
}

// ---- whether to draft, and how long a block ----

// Once per step; observe_failure() replaces it.
void controller::set_reason(dflash::reason why) {
    reason_ = why;
    ++counts_.reasons[why];
}

double controller::plain_rate(int32_t n_slots, double n_attended) const {
    return n_slots / std::max(1e-9, costs_.verify.at(n_slots, n_slots * n_attended) + costs_.other_ms);
}

double controller::plain_ms(const std::vector<slot> & slots, double n_attended) const {
    const int32_t n  = count_writing(slots);
    const double  ms = costs_.verify.at(n, n * n_attended);
    return ms > 0 ? ms + costs_.other_ms : 0;
}

// With blocks of the shortest length.
step_choice controller::plain_choice(const std::vector<slot> & slots, int32_t room) const {
    const int32_t n_writing = count_writing(slots);
    step_choice   choice;
    choice.tree_rows = std::max(std::min(room, tree_outputs(slots)), n_writing);
    for (const slot & s : slots) {
        if (s.writing()) {
            choice.n_attended += (double) s.n_past() / (double) n_writing;
        }
    }
    return choice;
}

step_choice controller::choose_length(const std::vector<slot> & slots, int32_t room) {
    step_choice          choice   = plain_choice(slots, room);
    const drafting_slots drafting = drafting_of(slots, choice);
    if (drafters_.empty()) {
        set_reason(any_quotes(slots) ? reason::quotes : reason::no_drafter);
    } else if (drafting.all.empty()) {
        set_reason(reason::off);
    } else {
        last_choice_    = choose_drafter(slots, drafting, choice);
        choice.drafter  = last_choice_.drafter;
        choice.is_fixed = drafting.fixed_length > 1;
        choice.length   = wanted_length(drafting, last_choice_, choice);
        if (drafters_[choice.drafter].pads && choice.length > 1) {
            choice.length = padded_length(choice.length, choice.drafter);
        }
    }
    return choice;
}

drafting_slots controller::drafting_of(const std::vector<slot> & slots, const step_choice & choice) const {
    drafting_slots drafting;
    for (const slot & s : slots) {
        if (!s.writing() || max_nodes(s, choice) == 1) {
            continue;
        }
        drafting.all.push_back(&s);
        // A tree of N nodes may be N - 1 deep, and its likeliest path often is.
        const int32_t length = 1 + std::min({ max_depth(s), s.request.depth, limits_.max_length - 1 });
        drafting.max_length  = std::max(drafting.max_length, length);
        if (s.request.budget != 0) {
            const int32_t n_budget = s.request.max_children > 1 ? DFLASH_MAX_NODES : s.request.budget;
            drafting.fixed_length  = std::max(drafting.fixed_length, std::min(length, n_budget));
        } else {
            drafting.automatic.push_back(&s);
        }
    }
    return drafting;
}

// Whether all slots can take its drafts.
bool controller::may_draft(int32_t drafter, const std::vector<slot> & slots) const {
    return drafters_[drafter].lattice || std::none_of(slots.begin(), slots.end(),
                                             [](const slot & s) { return s.writing() && s.request.block_accept; });
}

length_choice controller::best_of(int32_t drafter, const drafting_slots & drafting, const step_choice & choice) const {
    std::vector<const value_profile *> profiles;
    for (const slot * s : drafting.automatic) {
        profiles.push_back(&s->learned.drafters[drafter].values);
    }
    length_choice best = best_length(profiles, block_lengths(drafting.max_length, drafter), costs_.verify,
        choice.n_attended, costs_.drafts[drafter], costs_.other_ms, choice.tree_rows);
    best.drafter       = drafter;
    return best;
}

// Those that may draft. There is one, because block verification is refused where no drafter has a lattice
// (require_lattice()).
std::vector<int32_t> controller::drafters_of(const std::vector<slot> & slots) const {
    std::vector<int32_t> drafters;
    for (int32_t drafter = 0; drafter < (int32_t) drafters_.size(); ++drafter) {
        if (may_draft(drafter, slots)) {
            drafters.push_back(drafter);
        }
    }
    return drafters;
}

// The drafter and its best length; none that failed if there is another. If no slot leaves this to the controller, the
// first drafter that is ready.
length_choice controller::choose_drafter(
    const std::vector<slot> & slots, const drafting_slots & drafting, const step_choice & choice) {
    std::vector<length_choice> best;
    for (const int32_t drafter : rests_.ready(drafters_of(slots))) {
        best.push_back(best_of(drafter, drafting, choice));
    }
    if (drafting.automatic.empty()) {
        next_kind_.reset();
        return best.front();
    }
    // Only a step with drafts is somebody's turn (observe_draft()).
    next_kind_  = (size_t) drafting.automatic.front()->request.greedy;
    next_turns_ = turns_[*next_kind_];
    return next_turns_.choose(best);
}

// What fixed budgets ask for; otherwise the drafter's best length, or 1 where it does not pay.
int32_t controller::wanted_length(
    const drafting_slots & drafting, const length_choice & best, const step_choice & choice) {
    if (drafting.fixed_length > 1) {
        set_reason(reason::fixed);
        return std::min(drafters_[best.drafter].max_length, std::max(drafting.fixed_length, best.length));
    }
    if (quotes_suffice(drafting, best, choice)) {
        set_reason(reason::quotes);
        return 1;
    }
    return auto_length(best, plain_rate((int32_t) drafting.all.size(), choice.n_attended));
}

// Whether quotations alone yield more tokens per ms than together with blocks of the drafter's best length. Drafter and
// quotation mostly propose the same path, so only the better of the two counts for a slot.
bool controller::quotes_suffice(
    const drafting_slots & drafting, const length_choice & best, const step_choice & choice) const {
    if (best.rate == 0) {
        return false;   // what the drafter is worth is not known
    }
    const auto sum = [](const std::vector<float> & values) {
        return std::accumulate(values.begin(), values.end(), 0.0f);
    };
    std::vector<std::vector<float>> quoted, better;
    size_t                          n_quoted = 0;
    for (const slot * s : drafting.all) {
        quoted.push_back(s->drafts.quoted.values(s->request.max_children == 1));
        n_quoted += quoted.back().size();
        const std::vector<float> * drafted = s->learned.drafters[best.drafter].values.at(best.length);
        better.push_back(drafted && sum(*drafted) > sum(quoted.back()) ? *drafted : quoted.back());
    }
    const auto rate = [&](const std::vector<std::vector<float>> & values, double draft_ms) {
        return best_nodes(values, costs_.verify, choice.n_attended, draft_ms + costs_.other_ms, choice.tree_rows).rate;
    };
    const double draft_ms = costs_.drafts[best.drafter].at((int32_t) better.size() * best.length);
    return n_quoted > 0 && rate(quoted, 0) > rate(better, draft_ms);
}

// The drafter's best length, or 1 where plain decoding is faster or must be measured.
int32_t controller::auto_length(const length_choice & best, double plain) {
    if (!switch_.draft_now()) {
        n_since_plain_ = 0;
        set_reason(reason::plain);
        return 1;
    }
    const bool gains_little = best.rate > 0 && best.rate < REFRESH_GAIN * plain;
    if (gains_little && ++n_since_plain_ >= (costs_.verify.padded() ? PADDED_REFRESH_STEPS : REFRESH_STEPS)) {
        n_since_plain_ = 0;
        padding_.width().narrow_once();
        set_reason(reason::refresh);
        return 1;
    }
    set_reason(reason::pays);
    return best.length;
}

// Of few lengths, so that graphs can be reused.
int32_t controller::padded_length(int32_t length, int32_t drafter) {
    const int32_t      longest = drafters_[drafter].max_length;
    const cost_curve & draft   = costs_.drafts[drafter];
    steady_size &      steady  = block_length_[drafter];
    const int32_t      narrow  = std::min(std::max(8, padded_width(length)), longest);
    const int32_t      padded  = steady.choose(narrow, longest, draft, costs_.rebuild_ms);
    steady.observe(padded, narrow, draft);
    return padded;
}

// ---- how many nodes ----

reason controller::reason_of(const slot & s, const pass_record & next) const {
    if (s.request.budget == 0 && !next.draft_ms && s.drafts.tree.size() > 1) {
        return reason::quotes;
    }
    if (drafters_.empty()) {
        return s.drafts.quoted.empty() ? reason::no_drafter : reason::quotes;
    }
    if (max_nodes(s, next.choice) == 1) {
        return reason::off;
    }
    if (s.request.budget != 0) {
        return reason::fixed;
    }
    return reason_ == reason::fixed ? reason::pays : reason_;   // the others' budget is fixed
}

// Nodes that each of these trees keeps if all together may have max_nodes: the largest are cut, and no anchor.
static std::vector<int32_t> fair_sizes(const std::vector<slot *> & slots, int32_t max_nodes) {
    const auto nodes_up_to = [&](int32_t level) {
        return std::accumulate(slots.begin(), slots.end(), 0,
            [&](int32_t n, const slot * s) { return n + std::min(s->drafts.tree.size(), level); });
    };
    int32_t level = DFLASH_MAX_NODES;
    while (level > 1 && nodes_up_to(level) > max_nodes) {
        --level;
    }
    int32_t              n_left = std::max(0, max_nodes - nodes_up_to(level));
    std::vector<int32_t> sizes;
    for (const slot * s : slots) {
        const bool takes_one = n_left > 0 && s->drafts.tree.size() > level;
        n_left -= takes_one;
        sizes.push_back(std::min(s->drafts.tree.size(), level) + takes_one);
    }
    return sizes;
}

// Cuts trees with a fixed budget, so that every other slot has room for its anchor. Returns how many nodes they keep.
static int32_t cut_fixed(const std::vector<slot *> & fixed, int32_t max_nodes) {
    const std::vector<int32_t> sizes = fair_sizes(fixed, max_nodes);
    for (size_t i = 0; i < fixed.size(); ++i) {
        fixed[i]->drafts.tree.nodes.resize(sizes[i]);
    }
    return std::accumulate(sizes.begin(), sizes.end(), 0);
}

// Of the draft nodes.
static std::vector<float> values_of(const tree & t) {
    std::vector<float> values;
    for (int32_t i = 1; i < t.size(); ++i) {
        values.push_back(t.nodes[i].value);
    }
    return values;
}

// Cuts trees with an automatic budget to the nodes that pay best beside n_fixed nodes of n_others slots with a fixed
// budget. Returns the tokens that they are expected to yield.
double controller::cut_automatic(
    const std::vector<slot *> & automatic, int32_t n_others, int32_t n_fixed, const pass_record & next) const {
    if (automatic.empty()) {
        return 0;
    }
    std::vector<std::vector<float>> values;
    for (const slot * s : automatic) {
        values.push_back(values_of(s->drafts.tree));
    }
    // Slots with a fixed budget pay for their share of the drafter's pass; only the rest is charged here.
    const double share    = (double) automatic.size() / (double) (automatic.size() + n_others);
    const double fixed_ms = next.draft_ms.value_or(0) * share + costs_.other_ms;
    // A quotation beside plain steps is mostly one step: the pass after it has their width again.
    const int32_t     last_rows = last_rows_ - n_fixed;
    const bool        is_lone   = !next.draft_ms && last_rows <= costs_.verify.width((int32_t) automatic.size());
    const last_pass   last      = { last_rows, (is_lone ? 2 : 1) * costs_.rebuild_ms };
    const node_choice best =
        best_nodes(values, costs_.verify, next.choice.n_attended, fixed_ms, next.choice.tree_rows - n_fixed, last);
    for (size_t i = 0; i < automatic.size(); ++i) {
        automatic[i]->drafts.tree.nodes.resize(best.per_slot[i]);
    }
    return best.gain;
}

double controller::choose_nodes(std::vector<slot> & slots, const pass_record & next) {
    std::vector<slot *> fixed, automatic;
    for (slot & s : slots) {
        if (s.writing()) {
            (s.request.budget != 0 ? fixed : automatic).push_back(&s);
        }
    }
    for (slot * s : automatic) {
        learn_values(*s);
    }
    const int32_t n_fixed         = cut_fixed(fixed, next.choice.tree_rows - (int32_t) automatic.size());
    double        expected_tokens = cut_automatic(automatic, (int32_t) fixed.size(), n_fixed, next);
    for (const slot * s : fixed) {
        for (const node & n : s->drafts.tree.nodes) {
            expected_tokens += n.value;
        }
    }
    for (slot & s : slots) {
        if (s.writing()) {
            s.drafts.reason = reason_of(s, next);
        }
    }
    return expected_tokens;
}

void controller::cut_trees(std::vector<slot> & slots, int32_t room) {
    std::vector<slot *> writing;
    for (slot & s : slots) {
        if (s.writing()) {
            writing.push_back(&s);
        }
    }
    const std::vector<int32_t> sizes = fair_sizes(writing, room);
    for (size_t i = 0; i < writing.size(); ++i) {
        tree &     t    = writing[i]->drafts.tree;
        const bool goes = writing[i]->request.block_accept && sizes[i] < t.size();   // a drawn chain stays whole
        t.nodes.resize(goes ? 1 : sizes[i]);
    }
}

// ---- what is learned ----

// What the drafter's part of a tree is worth, for the next choice of a block length. An empty block is worth nothing.
void controller::learn_values(slot & s) const {
    const int32_t length = std::max(s.drafts.block.length, s.drafts.n_denoised);
    if (length <= 1) {
        return;
    }
    std::vector<int32_t> depths;
    std::vector<float>   values;
    for (int32_t i = 1; i < s.drafts.tree.size(); ++i) {
        const node & n = s.drafts.tree.nodes[i];
        if (n.candidate >= 0) {
            depths.push_back(n.depth);
            values.push_back(n.value);
        }
    }
    const std::vector<int32_t> lengths = block_lengths(limits_.n_draft_max + 1, s.drafts.drafter);
    s.learned.drafters[s.drafts.drafter].values.observe(length, lengths, depths, values);
}

// What a step with drafts counts for. After a plain step it is not charged for what many in a row pay once: a graph of
// another width, and the taps of the rest. Nor may one slow pass (another process) end drafting. What several passes
// take is no such accident.
double controller::counted_ms(const pass_record & pass, double verify_ms, double n_cells) const {
    const double usual = costs_.verify.at(pass.n_rows, n_cells);
    const double most  = usual > 0 && !pass.is_split ? (was_drafted_ ? 2 * usual : usual) : verify_ms;
    return usual_draft_ms_ + std::min(verify_ms, most) + costs_.other_ms;
}

void controller::observe_verify(const std::vector<slot> & slots, const pass_record & pass) {
    const double rebuild_ms = pass.n_rows != last_rows_ ? costs_.rebuild_ms : 0.0;
    const double ms         = costs_.fixed ? costs_.verify.at(pass.n_rows) + rebuild_ms : pass.verify_ms;
    if (pass.trees_only) {
        double  n_cells = 0, n_tokens = 0;
        int32_t n_slots = 0, n_nodes = 0;
        for (const slot & s : slots) {
            if (s.pass.n_rows > 0) {
                n_cells += (double) s.pass.n_rows * s.n_past();   // still without the accepted path
                n_tokens += (double) s.pass.walked.tokens.size();
                n_nodes += s.pass.n_rows;
                ++n_slots;
            }
        }
        learn_costs(pass, n_cells, ms, rebuild_ms);
        if (pass.draft_ms && !pass.choice.is_fixed) {
            switch_.observe(n_slots, n_tokens - n_slots, pass.expected_tokens - n_slots, counted_ms(pass, ms, n_cells),
                plain_rate(n_slots, pass.choice.n_attended));
        }
        padding_.width().observe(pass.n_rows, costs_.verify.width(n_nodes), costs_.verify);
    } else {
        padding_.width().forget();
    }
    last_rows_   = pass.n_rows;
    was_drafted_ = pass.draft_ms.has_value();
}

// Of a pass without prompts that took `ms`. Several passes say little of what one with all their rows costs: they count
// only while nothing is known.
void controller::learn_costs(const pass_record & pass, double n_cells, double ms, double rebuild_ms) {
    const double usual = costs_.verify.at(pass.n_rows, n_cells);
    if (pass.is_split && usual > 0) {
        return;
    }
    if (!costs_.fixed) {
        learn_rebuild(pass.n_rows != last_rows_, std::min(ms, 2 * usual) - usual);   // a page fault, another process
    }
    costs_.verify.observe(pass.n_rows, n_cells, ms - rebuild_ms);
}

// excess_ms: of a pass over its width's time. What passes without a change of width have, too, is no change's: for a
// while everything may be slower.
void controller::learn_rebuild(bool rebuilds, double excess_ms) {
    constexpr double NEWEST = 0.2;
    if (rebuilds) {
        costs_.observe_rebuild(excess_ms - usual_excess_ms_);
    } else {
        usual_excess_ms_ += NEWEST * (excess_ms - usual_excess_ms_);
    }
}

void controller::observe_walk(slot & s) {
    ++counts_.nodes[s.drafts.tree.size()];
    observe(s.learned.quotes, s.drafts.quoted, s.pass.walked.tokens);
    if (s.drafts.tree.size() > 1) {
        s.learned.observe(s.drafts.tree, s.pass.walked.path, s.drafts.drafter);
    }
    if (s.drafts.n_denoised > 1 && s.drafts.quoted.empty()) {   // else it is not all the drafter's
        s.learned.drafters[s.drafts.drafter].window.observe((int32_t) s.pass.walked.path.size() - 1);
    }
}

int32_t controller::choose_window(slot & s, int32_t drafter, int32_t n_ctx) {
    if (!drafters_[drafter].windows) {
        return draft_window::ALL;
    }
    draft_window & windows = s.learned.drafters[drafter].window;
    // A trial that a quotation hides would not be observed.
    const int32_t window = s.drafts.quoted.empty() ? windows.choose(std::min(s.n_past(), n_ctx)) : windows.usual();
    ++counts_.windows[window == draft_window::ALL ? 0 : window];
    return window;
}

double controller::observe_draft(
    const pass_record & last, const step_choice & choice, int32_t n_slots, int32_t n_injected, double ms) {
    cost_curve &  draft    = costs_.drafts[choice.drafter];
    const int32_t n_tokens = n_slots * choice.length;
    ++counts_.lengths[choice.length];
    ++counts_.drafters[choice.drafter];
    if (next_kind_) {
        turns_[*next_kind_] = next_turns_;
        next_kind_.reset();
    }
    rests_.drafted(choice.drafter);
    failures_[choice.drafter].clear();
    ms                   = costs_.fixed ? draft.at(n_tokens) : ms;
    const bool   injects = n_injected > 2 * n_tokens;   // that is most of the time
    const double usual   = draft.at(n_tokens);
    usual_draft_ms_      = usual > 0 ? std::min(ms, injects ? usual : 2 * usual) : ms;
    if (last.trees_only && !injects) {
        draft.observe(n_tokens, 0, ms);
    }
    return ms;
}

void controller::observe_failure(
    const std::vector<slot> & slots, const pass_record & next, int32_t drafter, const std::string & why) {
    failures_[drafter] = why;
    if (next.choice.length <= 1 || next.choice.drafter != drafter || next.draft_ms) {
        return;   // the step has what was chosen for it
    }
    rests_.fail(drafter);
    if (!next.choice.is_fixed && !rests_.any_ready(drafters_of(slots))) {
        switch_.fail();
    }
    if (--counts_.reasons[reason_] == 0) {
        counts_.reasons.erase(reason_);
    }
    set_reason(reason::failed);
}

const std::string & controller::drafter_failure() const {
    const auto failed = [](const std::string & why) { return !why.empty(); };
    const auto first  = std::find_if(std::begin(failures_), std::end(failures_), failed);
    return first == std::end(failures_) ? failures_[0] : *first;
}

// A step that stalled (another process) counts for twice what is usual.
void controller::observe_other(double ms) {
    constexpr double NEWEST = 0.05, LEAST_MS = 1;
    if (!costs_.fixed) {
        costs_.other_ms += NEWEST * (std::min(ms, 2 * std::max(costs_.other_ms, LEAST_MS)) - costs_.other_ms);
    }
}

}   // namespace dflash
