// grow() against brute force over every prefix, for marginals and lattices; chains; ties; degenerate drafts.

#include "draft/tree_growth.h"

#include "check.h"
#include "quotations.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <set>

using namespace dflash;

static growth_limits limits(int32_t budget, int32_t max_children) {
    growth_limits g;
    g.budget       = budget;
    g.max_children = max_children;
    return g;
}

static draft random_draft(std::mt19937 & rng, int32_t length, int32_t k, bool lattice) {
    draft d;
    d.length  = length;
    d.top_k   = k;
    d.lattice = lattice;
    std::uniform_real_distribution<float> u(0.01f, 1.0f);
    const int32_t                         rows = (length - 1) * (lattice ? k : 1);
    for (int32_t i = 0; i < (length - 1) * k; ++i) {
        d.ids.push_back(100 * (i / k) + i % k);
    }
    for (int32_t r = 0; r < rows; ++r) {
        std::vector<float> p(k);
        float              sum = 0.3f;   // the candidates never have all of the probability
        for (float & x : p) {
            sum += x = u(rng);
        }
        for (float & x : p) {
            x /= sum;
        }
        if (!lattice) {
            std::sort(p.rbegin(), p.rend());
        }
        d.probs.insert(d.probs.end(), p.begin(), p.end());
    }
    return d;
}

// Every prefix of the draft: its value and its tokens.
struct prefix {
    double               value;
    std::vector<int32_t> tokens;
};

static std::vector<prefix> all_prefixes(const draft & d) {
    std::vector<prefix>                                                 out;
    std::function<void(int32_t, int32_t, double, std::vector<int32_t>)> visit =
        [&](int32_t depth, int32_t pred, double value, const std::vector<int32_t> & tokens) {
            if (depth > d.positions()) {
                return;
            }
            for (int32_t c = 0; c < d.top_k; ++c) {
                auto t = tokens;
                t.push_back(d.id(depth, c));
                const double v = value * d.row(depth, pred)[c];
                out.push_back({ v, t });
                visit(depth + 1, c, v, t);
            }
        };
    visit(1, 0, 1.0, {});
    std::sort(out.begin(), out.end(), [](const prefix & a, const prefix & b) { return a.value > b.value; });
    return out;
}

static std::vector<int32_t> path_tokens(const tree & t, int32_t i) {
    std::vector<int32_t> out;
    for (; i > 0; i = t.nodes[i].parent) {
        out.push_back(t.nodes[i].token);
    }
    std::reverse(out.begin(), out.end());
    return out;
}

static void against_brute_force() {
    std::mt19937 rng(7);
    for (int32_t round = 0; round < 300; ++round) {
        const draft   d      = random_draft(rng, 2 + round % 4, 1 + round % 4, round % 2);
        const auto    best   = all_prefixes(d);
        const int32_t budget = 1 + round % 23;
        const tree    t      = grow(d, 42, limits(budget, d.top_k));
        CHECK(t.size() == std::min<int32_t>(budget, 1 + (int32_t) best.size()));
        CHECK(t.nodes[0].token == 42 && t.nodes[0].parent == -1);
        double                         sum = 0, want = 0;
        std::set<std::vector<int32_t>> seen;
        for (int32_t i = 1; i < t.size(); ++i) {
            const node & n = t.nodes[i];
            CHECK(n.parent >= 0 && n.parent < i);
            CHECK(n.depth == t.nodes[n.parent].depth + 1);
            CHECK(std::fabs(n.value - t.nodes[n.parent].value * n.prob) < 1e-6);
            CHECK(i == 1 || n.value <= t.nodes[i - 1].value + 1e-7);
            CHECK(t.child(n.parent, n.token) == i);
            CHECK(seen.insert(path_tokens(t, i)).second);
            sum += n.value;
            want += best[i - 1].value;
        }
        CHECK(std::fabs(sum - want) < 1e-5 * (1 + want));
    }
}

static void chains() {
    std::mt19937 rng(1);
    for (const bool lattice : { false, true }) {
        const draft d = random_draft(rng, 9, 5, lattice);
        const tree  t = grow(d, 1, limits(100, 1));
        CHECK(t.size() == 9 && t.is_chain());
        int32_t pred = 0;
        for (int32_t depth = 1; depth < 9; ++depth) {   // the greedy path
            const float * p = d.row(depth, pred);
            pred            = (int32_t) (std::max_element(p, p + 5) - p);
            CHECK(t.nodes[depth].token == d.id(depth, pred));
        }
        CHECK(!grow(d, 1, limits(9, 5)).is_chain() || lattice);
        CHECK(grow(d, 1, growth_limits{ 100, 5, 3, nullptr, nullptr }).depth() == 3);
    }
    CHECK(grow(draft{}, 5, limits(16, 8)).size() == 1);                         // nothing drafted
    CHECK(grow(random_draft(rng, 4, 3, false), 5, limits(1, 8)).size() == 1);   // budget 1 is plain decoding
    CHECK(tree{}.is_chain());
}

// Among equal values, the shallower parent's child comes first, then the better rank.
static void ties() {
    draft d;
    d.length     = 3;
    d.top_k      = 2;
    d.ids        = { 10, 11, 20, 21 };
    d.probs      = { 0.5f, 0.5f, 0.5f, 0.5f };
    const tree t = grow(d, 1, limits(7, 2));
    CHECK(t.size() == 7);
    const std::vector<std::pair<int32_t, int32_t>> order = { { 0, 10 }, { 0, 11 }, { 1, 20 }, { 1, 21 }, { 2, 20 },
        { 2, 21 } };
    for (int32_t i = 1; i < t.size(); ++i) {
        CHECK(t.nodes[i].parent == order[i - 1].first && t.nodes[i].token == order[i - 1].second);
    }
}

// A quotation in the tree: the paths of its entries are paths of the tree, tokens that are proposed twice are a single
// node, and it can be longer than the block.
// The drafter knows only what follows its first candidates.
static void only_first_candidates_are_followed() {
    draft d;
    d.length        = 4;
    d.top_k         = 2;
    d.follows_first = true;
    d.ids           = { 10, 11, 20, 21, 30, 31 };
    d.probs         = { 0.5f, 0.4f, 0.5f, 0.4f, 0.5f, 0.4f };
    const tree t    = grow(d, 1, limits(64, 2));
    CHECK(t.size() == 7 && t.depth() == 3);   // two children of each node on one path
    for (int32_t i = 1; i < t.size(); ++i) {
        CHECK(t.nodes[i].parent == 0 || t.nodes[t.nodes[i].parent].candidate == 0);
    }
}

static void quotations() {
    std::mt19937 rng(5);
    for (int32_t round = 0; round < 300; ++round) {
        const draft   d = random_draft(rng, 2 + round % 4, 4, round % 2);
        continuations found;
        for (int32_t place = 0; place < 1 + round % 5; ++place) {   // they part sooner or later
            found.begin(quote_source::text, round % 3 == 0 ? 24 : 2 + (int32_t) (rng() % 8));
            for (int32_t i = 0; i < 9; ++i) {   // some are candidates' tokens, some are not
                const int32_t depth = i + 1;
                found.push(depth <= d.positions() && rng() % 2 ? d.id(depth, (int32_t) (rng() % 4))
                                                               : 9000 + (int32_t) (rng() % 2) * 100 + i);
            }
        }
        const quotation q                = quote(1, found, {}, 9);
        growth_limits   g                = limits(2 + round % 30, 4);
        g.quoted                         = &q;
        const tree                     t = grow(d, 1, g);
        std::set<std::vector<int32_t>> seen;
        int32_t                        n_quoted = 0;
        std::vector<float>             below(t.size(), 0);   // of each node, its children's values
        for (int32_t i = 1; i < t.size(); ++i) {
            const node &  n      = t.nodes[i];
            const int32_t before = t.nodes[n.parent].entry, entry = before < 0 ? -1 : q.after(before, n.token);
            CHECK(seen.insert(path_tokens(t, i)).second);    // no token twice below the same parent
            CHECK(n.value <= t.nodes[i - 1].value + 1e-7);   // still ordered
            CHECK(n.value <= t.nodes[n.parent].value + 1e-7);
            CHECK((n.candidate >= 0) == (n.prob > 0));
            CHECK(n.candidate >= 0 || n.entry > 0);   // somebody proposed it
            CHECK(n.entry == entry);                  // wherever the quotation says so, it is quoted
            n_quoted += n.entry > 0;
            below[n.parent] += n.value;
        }
        for (int32_t i = 0; i < t.size(); ++i) {   // one token follows: what the drafter and a quotation say shares it
            const int32_t quoted = t.nodes[i].entry;
            CHECK(quoted < 0 || q.empty() || q.entries[quoted].n_after == 0 || below[i] <= t.nodes[i].value + 1e-5);
        }
        CHECK(
            round % 15 != 0 || n_quoted >= std::min(t.size() - 1, 3));   // one continuation that is likely comes first
        CHECK(t.size() == g.budget || t.size() > d.positions());
    }
    // nothing drafted: the quotation alone
    const quotation q = chain_quotation({ 7, 8, 9 }, 0.5f);
    growth_limits   g = limits(16, 8);
    g.quoted          = &q;
    const tree t      = grow(draft{}, 1, g);
    CHECK(t.size() == 4 && t.is_chain() && t.nodes[3].token == 9 && std::fabs(t.nodes[3].value - 0.125f) < 1e-6);

    // two continuations are two branches, unless only chains are allowed: then the likelier one
    const quotation two = quote(1, found_at({ { 9, { 3, 4, 5 } }, { 6, { 3, 6 } }, { 2, { 8 } } }), {}, 8);
    g.quoted            = &two;
    const tree both     = grow(draft{}, 1, g);
    CHECK(both.size() == (int32_t) two.entries.size() && both.size() >= 5 && !both.is_chain());
    const int32_t shared = both.child(0, 3);
    CHECK(both.child(shared, 4) > 0 && both.child(shared, 6) > 0 && both.child(shared, 4) < both.child(shared, 6));
    g.max_children   = 1;
    const tree chain = grow(draft{}, 1, g);
    CHECK(chain.is_chain() && chain.size() == 4 && chain.nodes[3].token == 5);
}

// Calibrated values order the tree; they never exceed those of a better sibling or a parent.
static void calibrated() {
    std::mt19937 rng(11);
    calibration  learned;
    for (int i = 0; i < 400; ++i) {
        learned.observe(0.9f, true, 1 + i % 5, i % 4 == 0);    // an overconfident drafter
        learned.observe(0.2f, false, 1 + i % 5, i % 2 == 0);   // whose second candidates are better than it claims
    }
    for (const bool lattice : { false, true }) {
        const draft   d = random_draft(rng, 8, 6, lattice);
        growth_limits g = limits(40, 6);
        g.calibration   = &learned;
        const tree t    = grow(d, 1, g);
        CHECK(t.size() == 40);
        for (int32_t i = 2; i < t.size(); ++i) {
            CHECK(t.nodes[i].value <= t.nodes[i - 1].value + 1e-7 &&
                  t.nodes[i].value <= t.nodes[t.nodes[i].parent].value + 1e-7);
        }
    }
}

// The same draft with the candidates of each position in another order.
static draft shuffled(const draft & d, std::mt19937 & rng) {
    draft                out = d;
    const int32_t        k   = d.top_k;
    std::vector<int32_t> order(k), before(k);
    std::iota(before.begin(), before.end(), 0);
    for (int32_t depth = 1; depth <= d.positions(); ++depth) {
        std::iota(order.begin(), order.end(), 0);
        std::shuffle(order.begin(), order.end(), rng);
        for (int32_t r = 0; r < k; ++r) {
            out.ids[(size_t) (depth - 1) * k + r] = d.id(depth, order[r]);
        }
        for (int32_t pred = 0; pred < (d.lattice ? k : 1); ++pred) {
            float * row = out.probs.data() + (d.row(depth, pred) - d.probs.data());
            for (int32_t r = 0; r < k; ++r) {
                row[r] = d.row(depth, before[pred])[order[r]];
            }
        }
        before = order;
    }
    return out;
}

// CUDA returns the largest of a row in no order.
static void candidates_in_any_order() {
    std::mt19937 rng(11);
    for (int32_t round = 0; round < 200; ++round) {
        draft d = random_draft(rng, 2 + round % 6, 2 + round % 7, round % 2);
        if (d.lattice) {   // before the first position is the anchor: its rows are equal
            for (int32_t pred = 1; pred < d.top_k; ++pred) {
                std::copy_n(d.probs.begin(), d.top_k, d.probs.begin() + (size_t) pred * d.top_k);
            }
        }
        draft other = shuffled(d, rng);
        if (!d.lattice) {
            sort_candidates(other);
            CHECK(other.ids == d.ids && other.probs == d.probs);
        }
        for (const int32_t most : { 1, d.top_k }) {   // chains and trees
            const tree a = grow(d, 42, limits(1 + round % 40, most)), b = grow(other, 42, limits(1 + round % 40, most));
            CHECK(a.size() == b.size());
            for (int32_t i = 0; i < a.size(); ++i) {
                const node &n = a.nodes[i], &m = b.nodes[i];
                CHECK(n.token == m.token && n.parent == m.parent && n.value == m.value && n.first == m.first);
            }
        }
    }
}

// Broken weights make a drafter compute NaN.
static void without_probabilities() {
    const float NONE = std::numeric_limits<float>::quiet_NaN();
    draft       d;
    d.length = 2;
    d.top_k  = 64;
    for (int32_t i = 0; i < d.top_k; ++i) {
        d.ids.push_back(i);
        d.probs.push_back(i % 3 == 1 ? NONE : (float) (i * 37 % 64) / 4096);
    }
    sort_candidates(d);
    const int32_t n_known = 43;
    for (int32_t rank = 0; rank < d.top_k; ++rank) {
        CHECK(std::isnan(d.probs[rank]) == (rank >= n_known) && (d.ids[rank] % 3 == 1) == (rank >= n_known));
        CHECK(rank == 0 || d.probs[rank] <= d.probs[rank - 1] || rank >= n_known);
        CHECK(rank <= n_known || d.ids[rank - 1] < d.ids[rank]);
    }
    CHECK(grow(d, 1, limits(100, 100)).size() == 1 + n_known);

    draft pairs;
    pairs.length  = 2;
    pairs.top_k   = 3;
    pairs.lattice = true;
    pairs.ids     = { 10, 11, 12 };
    pairs.probs   = { 0.1f, NONE, 0.5f, 0.1f, NONE, 0.5f, 0.1f, NONE, 0.5f };
    const calibration learned;
    growth_limits     g = limits(8, 8);
    g.calibration       = &learned;
    const tree t        = grow(pairs, 1, g);
    CHECK(t.size() == 3 && t.nodes[1].token == 12 && t.nodes[2].token == 10);

    pairs.probs       = std::vector<float>(9, NONE);
    const quotation q = chain_quotation({ 7, 8 }, 0.5f);
    g.quoted          = &q;
    const tree quoted = grow(pairs, 1, g);
    CHECK(quoted.size() == 3 && quoted.is_chain() && std::fabs(quoted.nodes[2].value - 0.25f) < 1e-6);
}

int main() {
    against_brute_force();
    candidates_in_any_order();
    chains();
    ties();
    only_first_candidates_are_followed();
    quotations();
    calibrated();
    without_probabilities();
    return TEST_RESULT;
}
