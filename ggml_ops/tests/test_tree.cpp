// grow() against brute force over every prefix, for marginals and lattices; chains; ties; degenerate drafts.

#include "tree.h"

#include "check.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <set>

using namespace dflash;

static draft random_draft(std::mt19937 & rng, int32_t length, int32_t k, bool lattice) {
    draft d;
    d.length  = length;
    d.top_k   = k;
    d.lattice = lattice;
    std::uniform_real_distribution<float> u(0.01f, 1.0f);
    const int32_t rows = (length - 1) * (lattice ? k : 1);
    for (int32_t i = 0; i < (length - 1) * k; ++i) {
        d.ids.push_back(100 * (i / k) + i % k);
    }
    for (int32_t r = 0; r < rows; ++r) {
        std::vector<float> p(k);
        float sum = 0.3f;   // the candidates never hold all of the probability
        for (float & x : p) { sum += x = u(rng); }
        for (float & x : p) { x /= sum; }
        if (!lattice) { std::sort(p.rbegin(), p.rend()); }
        d.probs.insert(d.probs.end(), p.begin(), p.end());
    }
    return d;
}

// Every prefix of the draft: its value and its tokens.
struct prefix { double value; std::vector<int32_t> tokens; };

static std::vector<prefix> all_prefixes(const draft & d) {
    std::vector<prefix> out;
    std::function<void(int32_t, int32_t, double, std::vector<int32_t>)> visit = [&](int32_t depth, int32_t pred, double value, std::vector<int32_t> tokens) {
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
    for (; i > 0; i = t.nodes[i].parent) { out.push_back(t.nodes[i].token); }
    std::reverse(out.begin(), out.end());
    return out;
}

static void against_brute_force() {
    std::mt19937 rng(7);
    for (int32_t round = 0; round < 300; ++round) {
        const draft d = random_draft(rng, 2 + round % 4, 1 + round % 4, round % 2);
        const auto  best = all_prefixes(d);
        const int32_t budget = 1 + round % 23;
        const tree t = grow(d, 42, budget, d.top_k);
        CHECK(t.size() == std::min<int32_t>(budget, 1 + (int32_t) best.size()));
        CHECK(t.nodes[0].token == 42 && t.nodes[0].parent == -1);
        double sum = 0, want = 0;
        std::set<std::vector<int32_t>> seen;
        for (int32_t i = 1; i < t.size(); ++i) {
            const node & n = t.nodes[i];
            CHECK(n.parent >= 0 && n.parent < i);
            CHECK(n.depth == t.nodes[n.parent].depth + 1);
            CHECK(std::fabs(n.value - t.nodes[n.parent].value * n.prob) < 1e-6);
            CHECK(i == 1 || n.value <= t.nodes[i - 1].value + 1e-7);
            CHECK(t.child(n.parent, n.token) == i);
            CHECK(seen.insert(path_tokens(t, i)).second);
            sum  += n.value;
            want += best[i - 1].value;
        }
        CHECK(std::fabs(sum - want) < 1e-5 * (1 + want));
    }
}

static void chains() {
    std::mt19937 rng(1);
    for (const bool lattice : { false, true }) {
        const draft d = random_draft(rng, 9, 5, lattice);
        const tree  t = grow(d, 1, 100, 1);
        CHECK(t.size() == 9 && t.is_chain());
        int32_t pred = 0;
        for (int32_t depth = 1; depth < 9; ++depth) {   // the greedy path
            const float * p = d.row(depth, pred);
            pred = (int32_t) (std::max_element(p, p + 5) - p);
            CHECK(t.nodes[depth].token == d.id(depth, pred));
        }
        CHECK(!grow(d, 1, 9, 5).is_chain() || lattice);
    }
    CHECK(grow(draft{}, 5, 16, 8).size() == 1);                       // nothing drafted
    CHECK(grow(random_draft(rng, 4, 3, false), 5, 1, 8).size() == 1); // budget 1 is plain decoding
    CHECK(tree{}.is_chain());
}

int main() {
    against_brute_force();
    chains();
    return TEST_RESULT;
}
