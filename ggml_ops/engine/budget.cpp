// How many nodes each slot's next tree may have, and to how many rows it is padded.

#include "engine/controller.h"

#include <algorithm>
#include <numeric>

namespace dflash {

// ---- bounds ----

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

int32_t controller::max_nodes(const slot & s) const {
    if (max_depth(s) == 0) {
        return 1;
    }
    const int32_t n_shape  = s.request.max_children > 1 ? DFLASH_MAX_NODES : 1 + max_depth(s);
    const int32_t n_budget = s.request.budget == 0 ? DFLASH_MAX_NODES : s.request.budget;
    // Siblings take cells of the shared cache until the walk is over.
    const int32_t n_cells = limits_.n_ctx_slot - s.n_past();
    return std::min({ n_budget, n_shape, limits_.n_nodes, n_tree_rows_, n_cells });
}

// ---- padding ----

// Prompts need rows and outputs of the pass, too, and change its graph.
static bool any_reads(const std::vector<slot> & slots) {
    return std::any_of(slots.begin(), slots.end(), [](const slot & s) { return s.reading(); });
}

std::vector<int32_t> controller::tree_sizes(const std::vector<slot> & slots, int32_t room) const {
    std::vector<int32_t> sizes;
    for (const slot & s : slots) {
        sizes.push_back(s.writing() ? s.drafts.tree.size() : 0);
    }
    limits_.equal_trees ? pad_to_equal(slots, room, sizes) : pad_last(slots, room, sizes);
    return sizes;
}

// Delta-net layers take trees of one size in a pass. Where one pass is cheaper than one for each size, smaller trees
// are padded.
void controller::pad_to_equal(const std::vector<slot> & slots, int32_t room, std::vector<int32_t> & sizes) const {
    std::map<int32_t, int32_t> n_slots_of;   // by the size of their trees
    int32_t                    n_slots = 0, n_past = 0;
    for (const slot & s : slots) {
        if (s.writing()) {
            ++n_slots_of[s.drafts.tree.size()];
            ++n_slots;
            n_past = std::max(n_past, s.n_past());
        }
    }
    if (n_slots == 0) {
        return;
    }
    const bool    padded  = costs_.verify.padded();
    const int32_t largest = n_slots_of.rbegin()->first;
    const int32_t size = padded ? std::min(limits_.n_nodes, padded_rows(largest * n_slots, room) / n_slots) : largest;
    const int32_t most_rows = std::min(room, padded ? limits_.n_outputs : limits_.n_rows);
    double        apart_ms  = 0;
    for (const auto & [n_nodes, n] : n_slots_of) {
        apart_ms += costs_.verify.at(n_nodes * n);
    }
    const bool pays = padded ? !any_reads(slots) : costs_.verify.at(n_slots * size) < apart_ms;
    if (pays && n_past + size <= limits_.n_ctx_slot && n_slots * size <= most_rows) {
        std::replace_if(sizes.begin(), sizes.end(), [](int32_t n) { return n > 0; }, size);
    }
}

// Where passes are padded and trees of different sizes share them.
void controller::pad_last(const std::vector<slot> & slots, int32_t room, std::vector<int32_t> & sizes) const {
    const auto last = std::find_if(sizes.rbegin(), sizes.rend(), [](int32_t n) { return n > 0; });
    if (!costs_.verify.padded() || last == sizes.rend() || any_reads(slots)) {
        return;
    }
    const slot &  s       = slots[sizes.rend() - last - 1];
    const int32_t n_nodes = std::accumulate(sizes.begin(), sizes.end(), 0);
    const int32_t size    = *last + padded_rows(n_nodes, room) - n_nodes;
    if (!s.request.block_accept && s.n_past() + size <= limits_.n_ctx_slot && size <= limits_.n_nodes) {
        *last = size;
    }
}

// The width of a pass over n_rows rows.
int32_t controller::padded_rows(int32_t n_rows, int32_t room) const {
    const int32_t most  = std::min(room, limits_.n_outputs);
    const int32_t width = width_.choose(costs_.verify.width(n_rows), most, costs_.verify, costs_.rebuild_ms);
    return width <= most ? width : n_rows;
}

// ---- how many nodes ----

reason controller::reason_of(const slot & s) const {
    if (limits_.max_length == 0) {
        return s.drafts.quoted.empty() ? reason::no_drafter : reason::quotes;
    }
    if (max_nodes(s) == 1) {
        return reason::off;
    }
    if (s.request.budget != 0) {
        return reason::fixed;
    }
    return reason_ == reason::fixed ? reason::pays : reason_;   // the others' budget is fixed
}

// Trees with a fixed budget must leave every other slot its anchor: cuts the last ones. Returns their nodes.
static int32_t cut_fixed(const std::vector<slot *> & fixed, int32_t max_nodes) {
    int32_t n_nodes = 0;
    for (const slot * s : fixed) {
        n_nodes += s->drafts.tree.size();
    }
    for (auto it = fixed.rbegin(); n_nodes > max_nodes && it != fixed.rend(); ++it) {
        std::vector<node> & nodes = (*it)->drafts.tree.nodes;
        const int32_t       n_cut = std::min(n_nodes - max_nodes, (int32_t) nodes.size() - 1);
        nodes.resize(nodes.size() - n_cut);
        n_nodes -= n_cut;
    }
    return n_nodes;
}

void controller::choose_nodes(std::vector<slot> & slots) {
    std::vector<slot *>             fixed, automatic;
    std::vector<std::vector<float>> values;   // [automatic]: of the draft nodes
    for (slot & s : slots) {
        if (!s.writing()) {
            continue;
        }
        s.drafts.reason = reason_of(s);
        if (s.request.budget != 0) {
            fixed.push_back(&s);
            continue;
        }
        automatic.push_back(&s);
        learn_values(s);
        values.emplace_back();
        for (int32_t i = 1; i < s.drafts.tree.size(); ++i) {
            values.back().push_back(s.drafts.tree.nodes[i].value);
        }
    }
    const int32_t n_fixed = cut_fixed(fixed, n_tree_rows_ - (int32_t) automatic.size());
    if (!automatic.empty()) {
        // Slots with a fixed budget carry their share of the drafter's pass.
        const double      share    = (double) automatic.size() / (double) (automatic.size() + fixed.size());
        const double      fixed_ms = draft_ms_.value_or(0) * share + costs_.other_ms;
        const last_pass   last     = { last_rows_ - n_fixed, costs_.rebuild_ms };
        const node_choice choice =
            dflash::choose_nodes(values, costs_.verify, mean_context_, fixed_ms, n_tree_rows_ - n_fixed, last);
        expected_tokens_ = choice.gain;
        for (size_t i = 0; i < automatic.size(); ++i) {
            slot & s = *automatic[i];
            s.drafts.tree.nodes.resize(choice.per_slot[i]);
            if (!draft_ms_ && s.drafts.tree.size() > 1) {
                s.drafts.reason = reason::quotes;
            }
        }
    }
    for (const slot * s : fixed) {
        for (const node & n : s->drafts.tree.nodes) {
            expected_tokens_ += n.value;
        }
    }
}

void controller::cut_trees(std::vector<slot> & slots, int32_t room) {
    int32_t n_nodes = 0;
    for (const slot & s : slots) {
        n_nodes += s.writing() ? s.drafts.tree.size() : 0;
    }
    for (auto s = slots.rbegin(); n_nodes > room && s != slots.rend(); ++s) {
        tree & t = s->drafts.tree;
        if (s->writing() && t.size() > 1) {
            n_nodes -= t.size() - 1;
            // a drawn chain stays whole or goes
            const int32_t n_left = s->request.block_accept ? 1 : 1 + std::max(0, room - n_nodes);
            t.nodes.resize(n_left);
            n_nodes += n_left - 1;
        }
    }
}

}   // namespace dflash
