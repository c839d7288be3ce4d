#include "draft/growth.h"

#include <algorithm>
#include <numeric>
#include <queue>

namespace dflash {

namespace {

// Candidates of one row in descending order. Marginals come sorted; a lattice's rows are sorted on first use.
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
            for (int32_t i = 0; i < d_.top_k; ++i) {   // insertion sort: few candidates, equal ones stay in order
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

// The next possible child of a node.
struct waiting {
    node    n;
    int32_t rank = 0;

    // Ties: the shallower parent first, then the better rank, so that trees are reproducible.
    bool operator<(const waiting & o) const {
        if (n.value != o.n.value) {
            return n.value < o.n.value;
        }
        if (n.parent != o.n.parent) {
            return n.parent > o.n.parent;
        }
        return rank > o.rank;
    }
};

// Drafter and quotation propose different tokens, so they cannot both be right. Each one's probability is multiplied by
// its factor, which takes the two as independent apart from that.
struct prob_factors {
    float drafter = 1, quotation = 1;

    static prob_factors of(float drafter, float quotation) {
        const float possible = std::max(1e-6f, 1 - drafter * quotation);
        return { (1 - quotation) / possible, (1 - drafter) / possible };
    }
};

// How many children of a node have been listed.
struct cursor {
    int32_t      rank     = 0;   // next candidate
    int32_t      children = 0;
    uint8_t      listed   = 0;   // which of the quotation's tokens are among them, a bit for each
    float        left     = 1;   // of the probability, beyond theirs
    prob_factors kept     = {};
};

// Best-first: the next best child of every node waits in a heap.
class grower {
  public:
    grower(const draft & d, int32_t anchor, const growth_limits & rules) : draft_(d), rules_(rules), ranks_(d) {
        tree_.nodes.reserve(std::max(1, rules.budget));
        add(node::root(anchor));
        std::vector<waiting> storage;
        storage.reserve(2 * (size_t) std::max(1, rules.budget));
        heap_ = std::priority_queue<waiting>({}, std::move(storage));
    }

    tree grow() {
        push_child(0, 1.0f);
        while (tree_.size() < rules_.budget && !heap_.empty()) {
            const node best = heap_.top().n;
            heap_.pop();
            add(best);
            push_child(tree_.size() - 1, best.value);
            push_child(best.parent, best.value);
        }
        return std::move(tree_);
    }

  private:
    void add(const node & n) {
        tree_.nodes.push_back(n);
        cursors_.emplace_back().kept = factors_of(n);
    }

    float probability(float prob, bool first, int32_t depth) const {
        return rules_.calibration ? rules_.calibration->apply(prob, first, depth) : prob;
    }

    // Below a node, for the drafter's first candidate and the likeliest quoted token.
    prob_factors factors_of(const node & n) {
        if (n_quoted(n) == 0 || !has_candidates(n)) {
            return {};
        }
        const int32_t depth = n.depth + 1, pred = std::max(0, n.candidate), first = ranks_.candidate(depth, pred, 0);
        if (quoted_as(n, draft_.id(depth, first)) >= 0) {
            return {};
        }
        const float drafter = probability(draft_.row(depth, pred)[first], true, depth);
        return prob_factors::of(drafter, rules_.quoted->entries[quoted_entry(n, 0)].prob);
    }

    // Whether the drafter has candidates below a node. In a lattice, a token that is not a candidate has no row.
    bool has_candidates(const node & n) const {
        return n.depth < draft_.positions() && (n.candidate >= 0 || !draft_.lattice);
    }

    // The quotation's tokens below a node: how many, and the k-th of them.
    int32_t n_quoted(const node & n) const {
        return rules_.quoted && n.entry >= 0 && !rules_.quoted->empty() ? rules_.quoted->entries[n.entry].n_after : 0;
    }
    int32_t quoted_entry(const node & n, int32_t k) const { return rules_.quoted->entries[n.entry].first + k; }

    // The likeliest of these that is not listed yet, -1: none.
    int32_t next_quoted(const node & n, const cursor & c) const {
        for (int32_t k = 0; k < n_quoted(n); ++k) {
            if (!(c.listed >> k & 1)) {
                return k;
            }
        }
        return -1;
    }

    // Which of these the token is, -1: none.
    int32_t quoted_as(const node & n, int32_t token) const {
        for (int32_t k = 0; k < n_quoted(n); ++k) {
            if (rules_.quoted->entries[quoted_entry(n, k)].token == token) {
                return k;
            }
        }
        return -1;
    }

    // Pushes a node's next best child into the heap. Calibrated probabilities may increase with the rank, so the
    // child's value is capped at that of the previous sibling.
    void push_child(int32_t parent, float max_value) {
        const node & n = tree_.nodes[parent];
        cursor &     c = cursors_[parent];
        if (n.depth >= rules_.depth || c.children >= rules_.max_children) {
            return;
        }
        waiting next;
        next.n.parent = parent;
        next.n.depth  = n.depth + 1;
        next.n.value  = -1;   // less than any token's
        next.rank     = c.rank;
        if (const int32_t k = next_quoted(n, c); k >= 0) {
            quote(next.n, quoted_entry(n, k));
        }
        if (has_candidates(n)) {
            prefer_candidate(next);
        }
        if (next.n.value < 0) {
            return;
        }
        if (const int32_t k = quoted_as(n, next.n.token); k >= 0) {
            c.listed |= (uint8_t) (1 << k);
            next.n.entry = quoted_entry(n, k);
            next.n.value = std::max(next.n.value, c.kept.quotation * rules_.quoted->entries[next.n.entry].prob);
        }
        if (next.n.entry < 0 || is_candidate(next.n, c.rank)) {
            ++c.rank;
        }
        if (n_quoted(n) > 0) {   // the drafter and the quotation can be sure of different tokens, and one is wrong
            next.n.value = std::min(next.n.value, c.left);
            c.left -= next.n.value;
        }
        ++c.children;
        next.n.value = std::min(next.n.value * n.value, max_value);
        heap_.push(next);
    }

    // Makes the child this token of the quotation; value: its probability below the parent. The drafter may propose it
    // too.
    void quote(node & child, int32_t entry) {
        const node &             n    = tree_.nodes[child.parent];
        const quotation::entry & e    = rules_.quoted->entries[entry];
        const cursor &           c    = cursors_[child.parent];
        const int32_t            pred = std::max(0, n.candidate), n_ranks = has_candidates(n) ? draft_.top_k : 0;
        child.token = e.token;
        child.value = c.kept.quotation * e.prob;
        child.first = false;
        child.entry = entry;
        for (int32_t rank = c.rank; rank < n_ranks; ++rank) {
            const int32_t candidate = ranks_.candidate(child.depth, pred, rank);
            if (draft_.id(child.depth, candidate) == child.token) {
                child.candidate   = candidate;
                child.prob        = draft_.row(child.depth, pred)[candidate];
                child.first       = rank == 0;
                const float value = c.kept.drafter * probability(child.prob, child.first, child.depth);
                child.value       = std::max(child.value, value);
                break;
            }
        }
    }

    // Replaces `next` by the parent's next candidate if that is worth more.
    void prefer_candidate(waiting & next) {
        node &        child = next.n;
        const node &  n     = tree_.nodes[child.parent];
        cursor &      c     = cursors_[child.parent];
        const int32_t pred  = std::max(0, n.candidate);
        while (c.rank < draft_.top_k) {
            const int32_t candidate = ranks_.candidate(child.depth, pred, c.rank);
            const int32_t token     = draft_.id(child.depth, candidate);
            if (const int32_t k = quoted_as(n, token); k >= 0 && (c.listed >> k & 1)) {
                ++c.rank;   // already a child
                continue;
            }
            const float prob  = draft_.row(child.depth, pred)[candidate];
            const float value = c.kept.drafter * probability(prob, c.rank == 0, child.depth);
            if (value > child.value) {
                child.token     = token;
                child.candidate = candidate;
                child.prob      = prob;
                child.value     = value;
                child.first     = c.rank == 0;
                child.entry     = -1;
                next.rank       = c.rank;
            }
            return;
        }
    }

    // Whether this child is its parent's candidate of this rank.
    bool is_candidate(const node & child, int32_t rank) {
        const node & parent = tree_.nodes[child.parent];
        return has_candidates(parent) && rank < draft_.top_k &&
               child.candidate == ranks_.candidate(child.depth, std::max(0, parent.candidate), rank);
    }

    const draft &                draft_;
    const growth_limits &        rules_;
    tree                         tree_;
    ranking                      ranks_;
    std::vector<cursor>          cursors_;   // [tree nodes]
    std::priority_queue<waiting> heap_;
};

}   // namespace

tree grow(const draft & d, int32_t anchor, const growth_limits & rules) { return grower(d, anchor, rules).grow(); }

}   // namespace dflash
