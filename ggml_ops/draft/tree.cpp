#include "draft/tree.h"

#include <algorithm>
#include <numeric>
#include <queue>

namespace dflash {

bool tree::is_chain() const {
    for (int32_t i = 1; i < size(); ++i) {
        if (nodes[i].parent != i - 1) {
            return false;
        }
    }
    return true;
}

int32_t tree::depth() const {
    int32_t most = 0;
    for (const node & n : nodes) {
        most = std::max(most, n.depth);
    }
    return most;
}

int32_t tree::child(int32_t parent, int32_t token) const {
    for (int32_t i = parent + 1; i < size(); ++i) {
        if (nodes[i].parent == parent && nodes[i].token == token) {
            return i;
        }
    }
    return -1;
}

namespace {

// Candidates of one row from the likeliest down. Marginals come sorted; a lattice's rows are sorted when a node first
// asks.
class ranking {
  public:
    explicit ranking(const draft & d) : d_(d) {
        if (d.lattice) {
            order_.resize(d.probs.size());
            sorted_.resize((size_t) d.positions() * d.top_k);
        }
    }

    int32_t candidate(int32_t depth, int32_t pred, int32_t rank) {
        if (!d_.lattice) {
            return rank;
        }
        const size_t row = (size_t) (depth - 1) * d_.top_k + pred;
        int16_t *    o   = order_.data() + row * d_.top_k;
        if (!sorted_[row]) {
            const float * p = d_.row(depth, pred);
            for (int32_t i = 0; i < d_.top_k; ++i) {   // insertion: few candidates, equal ones stay in order
                int32_t at = i;
                for (; at > 0 && p[o[at - 1]] < p[i]; --at) {
                    o[at] = o[at - 1];
                }
                o[at] = (int16_t) i;
            }
            sorted_[row] = true;
        }
        return o[rank];
    }

  private:
    const draft &        d_;
    std::vector<int16_t> order_;
    std::vector<char>    sorted_;
};

// The next child that a node may get.
struct entry {
    node    n;
    int32_t rank;

    // Ties: the shallower parent, then the better rank, so that trees are reproducible.
    bool operator<(const entry & o) const {
        if (n.value != o.n.value) {
            return n.value < o.n.value;
        }
        if (n.parent != o.n.parent) {
            return n.parent > o.n.parent;
        }
        return rank > o.rank;
    }
};

// How far the children of a node have been listed.
struct cursor {
    int32_t rank     = 0;   // next candidate
    int32_t children = 0;
    bool    quoted   = false;   // the quotation's token is among them
};

}   // namespace

tree grow(const draft & d, int32_t anchor, const growth & how) {
    tree t;
    t.nodes.reserve(std::max(1, how.budget));
    t.nodes.push_back({ anchor, -1, 0, 0, 1.0f, 1.0f });

    ranking             ranks(d);
    std::vector<cursor> cursors(1);
    std::vector<entry>  storage;
    storage.reserve(2 * (size_t) std::max(1, how.budget));
    std::priority_queue<entry> heap({}, std::move(storage));
    const int32_t              n_quoted = how.quoted ? (int32_t) how.quoted->tokens.size() : 0;

    // Puts the next best child of a node into the heap.
    const auto push = [&](int32_t parent, float at_most) {
        const node &  n     = t.nodes[parent];
        cursor &      c     = cursors[parent];
        const int32_t depth = n.depth + 1;
        if (n.depth >= how.depth || c.children >= how.width) {
            return;
        }
        const bool    quotes = !c.quoted && n.quoted == n.depth && n.depth < n_quoted;   // the anchor quotes 0 tokens
        const int32_t quoted = quotes ? how.quoted->tokens[n.depth] : -1;
        // A token that is not a candidate has no row in a lattice.
        const bool    drafted = depth <= d.positions() && (n.candidate >= 0 || !d.lattice);
        const int32_t pred    = std::max(0, n.candidate);
        const auto    odds    = [&](float p, bool first) { return how.odds ? how.odds->apply(p, first, depth) : p; };

        entry next = { { -1, parent, depth, -1, 0.0f, -1.0f, false, 0 }, c.rank };
        if (quotes) {
            next.n = { quoted, parent, depth, -1, 0.0f, how.quoted->odds, false, depth };
            for (int32_t r = c.rank; drafted && r < d.top_k; ++r) {
                const int32_t candidate = ranks.candidate(depth, pred, r);
                if (d.id(depth, candidate) == quoted) {   // both say so
                    next.n.candidate = candidate;
                    next.n.prob      = d.row(depth, pred)[candidate];
                    next.n.first     = r == 0;
                    next.n.value     = std::max(next.n.value, odds(next.n.prob, r == 0));
                    break;
                }
            }
        }
        while (drafted && c.rank < d.top_k) {
            const int32_t candidate = ranks.candidate(depth, pred, c.rank);
            if (c.quoted && d.id(depth, candidate) == how.quoted->tokens[n.depth]) {
                ++c.rank;   // already a child
                continue;
            }
            const float prob = d.row(depth, pred)[candidate], value = odds(prob, c.rank == 0);
            if (value > next.n.value) {
                next.n    = { d.id(depth, candidate), parent, depth, candidate, prob, value, c.rank == 0, 0 };
                next.rank = c.rank;
            }
            break;
        }
        if (next.n.value < 0) {
            return;
        }
        if (next.n.quoted > 0) {
            c.quoted = true;
        }
        if (next.n.quoted == 0 ||
            (drafted && c.rank < d.top_k && next.n.candidate == ranks.candidate(depth, pred, c.rank))) {
            ++c.rank;
        }
        ++c.children;
        next.n.value = std::min(next.n.value * n.value, at_most);   // calibrated chances need not fall with the rank
        heap.push(next);
    };

    push(0, 1.0f);
    while (t.size() < how.budget && !heap.empty()) {
        const node n = heap.top().n;
        heap.pop();
        t.nodes.push_back(n);
        cursors.emplace_back();
        push(t.size() - 1, n.value);
        push(n.parent, n.value);
    }
    return t;
}

}   // namespace dflash
