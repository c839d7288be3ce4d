// A verified tree as reported to the caller: every node, who proposed it, and the path.

#include "engine/verified_tree.h"

#include "check.h"
#include "quotations.h"

using namespace dflash;

static tree example() {
    tree t;
    t.nodes.push_back(node::root(7));
    t.nodes.push_back({ 8, 0, 1, 0, 0.5f, 0.4f });
    t.nodes.push_back({ 9, 1, 2, -1, 0.0f, 0.3f, true, 2 });   // quoted, and not a candidate of the drafter
    t.nodes.push_back({ 5, 0, 1, 1, 0.25f, 0.2f, false });
    return t;
}

int main() {
    verified_tree told;
    CHECK(told.view().n_nodes == 0 && told.view().n_path == 0);
    quotation quoted = chain_quotation({ 8, 9 }, 0.5f);
    told.set(example(), DFLASH_BY_DRAFTER, quoted, { 0, 1, 2 });
    const dflash_verified_tree view = told.view();
    CHECK(view.n_nodes == 4 && view.n_path == 3);
    const int32_t tokens[] = { 7, 8, 9, 5 }, parents[] = { -1, 0, 1, 0 };
    const int32_t origins[] = { DFLASH_BY_TARGET, DFLASH_BY_DRAFTER, DFLASH_BY_LOOKUP, DFLASH_BY_DRAFTER };
    const float   probs[] = { 1, 0.5f, 0, 0.25f }, values[] = { 1, 0.4f, 0.3f, 0.2f };
    for (int32_t i = 0; i < 4; ++i) {
        CHECK(view.tokens[i] == tokens[i] && view.parents[i] == parents[i] && view.origins[i] == origins[i]);
        CHECK(view.probs[i] == probs[i] && view.values[i] == values[i]);
    }
    for (int32_t i = 0; i < 3; ++i) {
        CHECK(view.path[i] == i);
    }
    for (const auto & [source, origin] : { std::pair{ quote_source::prediction, DFLASH_BY_PREDICTION },
             { quote_source::corpus, DFLASH_BY_CORPUS }, { quote_source::answers, DFLASH_BY_ANSWERS } }) {
        told.set(example(), DFLASH_BY_DRAFTER, chain_quotation({ 8, 9 }, 0.5f, source), { 0 });
        CHECK(told.view().origins[2] == origin && told.view().n_nodes == 4 && told.view().n_path == 1);
    }
    told.clear();
    CHECK(told.view().n_nodes == 0);
    return TEST_RESULT;
}
