// What a slot learns from a verified tree, and what its next tree starts with.

#include "engine/slot.h"

#include "check.h"
#include "quotations.h"

using namespace dflash;

// The anchor, a child of it, and a child of that.
static tree chain_of_three() {
    tree t{ { node::root(1) } };
    t.nodes.push_back({ 2, 0, 1, 0, 0.9f, 0.9f, true, 0 });
    t.nodes.push_back({ 3, 1, 2, 0, 0.9f, 0.8f, true, 0 });
    return t;
}

// Below a node that the walk did not reach, nothing was rejected.
static void only_nodes_below_reached_ones_are_tested() {
    tree first = chain_of_three();
    first.nodes.pop_back();
    experience of_chain, of_first_node, accepted;
    for (int32_t i = 0; i < 50; ++i) {
        of_chain.observe(chain_of_three(), { 0 }, 0);
        of_first_node.observe(first, { 0 }, 0);
        accepted.observe(chain_of_three(), { 0, 1 }, 0);
    }
    for (const int32_t depth : { 1, 2, 3 }) {
        CHECK(of_chain.drafters[0].calibration.apply(0.9f, true, depth) ==
              of_first_node.drafters[0].calibration.apply(0.9f, true, depth));
    }
    CHECK(
        accepted.drafters[0].calibration.apply(0.9f, true, 1) > accepted.drafters[0].calibration.apply(0.9f, true, 2));
}

// A step without a drafter pass must not grow the last pass's drafts again.
static void a_new_tree_has_no_drafts() {
    slot s;
    s.drafts.block.length = 3;
    s.drafts.block.top_k  = 1;
    s.drafts.block.ids    = { 5, 6 };
    s.drafts.block.probs  = { 0.5f, 0.5f };
    s.drafts.quoted       = chain_quotation({ 5 }, 0.5f);
    s.drafts.tree         = chain_of_three();
    s.drafts.drawn        = drawn_chain();
    s.drafts.n_denoised   = 3;
    s.drafts.pass_ms      = 2;
    s.drafts.begin(9);
    CHECK(s.drafts.tree.size() == 1 && s.drafts.tree.nodes[0].token == 9 && s.drafts.anchor == 9);
    CHECK(s.drafts.block.length == 0 && s.drafts.block.ids.empty() && s.drafts.quoted.empty());
    CHECK(s.drafts.n_denoised == 0 && s.drafts.pass_ms == 0);
    growth_limits limits;
    limits.budget = 8;
    limits.depth  = 8;
    CHECK(grow(s.drafts.block, s.drafts.anchor, limits).size() == 1);
}

// Two nodes of four are accepted, one of them by the lookup (no candidate), at depths 1 and 2 of 3.
static void what_is_counted() {
    slot   s;
    tree & t             = s.drafts.tree;
    t                    = chain_of_three();
    t.nodes[1].candidate = -1;
    t.nodes[1].entry     = 1;
    s.drafts.quoted      = chain_quotation({ 3 }, 0.5f, quote_source::corpus);
    t.nodes.push_back({ 4, 2, 3, 0, 0.9f, 0.7f, true });
    t.nodes.push_back({ 5, 0, 1, 0, 0.1f, 0.1f, true });
    s.pass.walked.path = { 0, 1, 2 };
    s.count_walk(DFLASH_BY_DRAFTER);
    CHECK(s.stats.n_passes == 1 && s.stats.n_plain == 0 && s.stats.n_drafted == 4 && s.stats.n_accepted == 2);
    CHECK(s.stats.n_lookup_drafted == 1 && s.stats.n_lookup_accepted == 1);
    CHECK(s.stats.quoted_drafted[2] == 1 && s.stats.quoted_accepted[2] == 1 && s.stats.quoted_drafted[0] == 0);
    for (const int32_t depth : { 1, 2, 3 }) {
        CHECK(s.stats.depth_drafted[depth] == 1 && s.stats.depth_accepted[depth] == (depth < 3 ? 1 : 0));
    }
    CHECK(s.stats.depth_drafted[4] == 0);
}

int main() {
    what_is_counted();
    only_nodes_below_reached_ones_are_tested();
    a_new_tree_has_no_drafts();
    return TEST_RESULT;
}
