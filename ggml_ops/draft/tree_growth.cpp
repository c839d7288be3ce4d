#include "draft/tree_growth.h"

#include <algorithm>
#include <cmath>
#include <queue>
#include <tuple>
#include <utility>

namespace dflash {

namespace {

// Whether a candidate of probability a comes before one of b. NaN, which a drafter may compute of broken weights, comes
// last: otherwise this would be no order, and sorting by it undefined.
bool is_likelier(float a, float b) { return a > b || (std::isnan(b) && !std::isnan(a)); }

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
                for (; at > 0 && is_likelier(p[i], p[o[at - 1]]); --at) {
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

// Order of nodes that wait to be added. Ties: the shallower parent first, so that trees are reproducible.
struct less_likely {
    bool operator()(const node & a, const node & b) const {
        return a.value != b.value ? a.value < b.value : a.parent > b.parent;
    }
};

// At most one of the two is right when drafter and quotation propose different tokens. Both probabilities are rescaled
// under that condition, as if they were otherwise independent.
struct prob_factors {
    float drafter = 1, quotation = 1;

    static prob_factors of(float drafter, float quotation) {
        const float possible = std::max(1e-6f, 1 - drafter * quotation);
        return { (1 - quotation) / possible, (1 - drafter) / possible };
    }
};

// A child that a node may have.
struct proposal : node {
    float probability = 0;   // given its parent: the drafter's, calibrated, or the quotation's
};

// A node's children.
struct children {
    int32_t               n_pushed = 0;
    float                 left     = 1;   // of the probability, beyond those that were pushed
    std::vector<proposal> proposed;       // where the quotation goes on; elsewhere the candidates are the children
};

// Best-first: the next best child of every node waits in a heap.
class grower {
  public:
    grower(const draft & d, int32_t anchor, const growth_limits & limits) : draft_(d), limits_(limits), ranks_(d) {
        tree_.nodes.reserve(std::max(1, limits.budget));
        add(node::root(anchor));
        std::vector<node> storage;
        storage.reserve(2 * (size_t) std::max(1, limits.budget));
        heap_ = std::priority_queue<node, std::vector<node>, less_likely>({}, std::move(storage));
    }

    tree grow() {
        push_child(0, 1.0f);
        while (tree_.size() < limits_.budget && !heap_.empty()) {
            const node best = heap_.top();
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
        children_.emplace_back();
    }

    // Candidates of the drafter below a node. In a lattice, a token that is not a candidate has no row.
    int32_t n_candidates(const node & n) const {
        const bool has_row =
            draft_.follows_first ? n.depth == 0 || n.candidate == 0 : n.candidate >= 0 || !draft_.lattice;
        return n.depth < draft_.positions() && has_row ? draft_.top_k : 0;
    }

    // Tokens of the quotation below a node.
    int32_t n_quoted(const node & n) const {
        return limits_.quoted && n.entry >= 0 && !limits_.quoted->empty() ? limits_.quoted->entries[n.entry].n_after
                                                                          : 0;
    }

    // A child that is the drafter's candidate of this rank.
    proposal candidate_below(int32_t parent, int32_t rank) {
        const node &  n    = tree_.nodes[parent];
        const int32_t pred = std::max(0, n.candidate);
        proposal      child;
        child.parent      = parent;
        child.depth       = n.depth + 1;
        child.candidate   = ranks_.candidate(child.depth, pred, rank);
        child.token       = draft_.id(child.depth, child.candidate);
        child.prob        = draft_.row(child.depth, pred)[child.candidate];
        child.first       = rank == 0;
        child.probability = limits_.calibration && !std::isnan(child.prob)
                                ? limits_.calibration->apply(child.prob, child.first, child.depth)
                                : child.prob;
        return child;
    }

    // A child that is the k-th of the quotation's tokens.
    proposal quoted_below(int32_t parent, int32_t k) const {
        const node & n = tree_.nodes[parent];
        proposal     child;
        child.parent      = parent;
        child.depth       = n.depth + 1;
        child.entry       = limits_.quoted->entries[n.entry].first + k;
        child.token       = limits_.quoted->entries[child.entry].token;
        child.first       = false;
        child.probability = limits_.quoted->entries[child.entry].prob;
        return child;
    }

    // Lists what may follow a node where the quotation goes on: the quotation's tokens and the drafter's candidates,
    // each in their order, and the likelier of the two first. A token that both propose counts once, as the likelier.
    void propose(int32_t parent) {
        const node & n = tree_.nodes[parent];
        quoted_.clear();
        candidates_.clear();
        for (int32_t k = 0; k < n_quoted(n); ++k) {
            quoted_.push_back(quoted_below(parent, k));
        }
        for (int32_t rank = 0; rank < n_candidates(n); ++rank) {
            const proposal child = candidate_below(parent, rank);
            if (std::isnan(child.probability)) {
                break;
            }
            candidates_.push_back(child);
        }
        weigh();
        unite();
        std::vector<proposal> & all    = children_[parent].proposed;
        const auto              listed = [&](const node & child) {
            return std::any_of(all.begin(), all.end(), [&](const node & other) { return other.token == child.token; });
        };
        auto q = quoted_.begin(), c = candidates_.begin();
        while ((int32_t) all.size() < limits_.max_children) {
            q = std::find_if_not(q, quoted_.end(), listed);
            c = std::find_if_not(c, candidates_.end(), listed);
            if (q == quoted_.end() && c == candidates_.end()) {
                return;
            }
            const bool drafted = q == quoted_.end() || (c != candidates_.end() && c->probability > q->probability);
            all.push_back(drafted ? *c : *q);
        }
    }

    // Where the drafter's first candidate is none of the quotation's tokens, not both of them can be right.
    void weigh() {
        if (candidates_.empty() || std::any_of(quoted_.begin(), quoted_.end(),
                                       [&](const node & q) { return q.token == candidates_[0].token; })) {
            return;
        }
        const prob_factors factors = prob_factors::of(candidates_[0].probability, quoted_[0].probability);
        for (proposal & q : quoted_) {
            q.probability *= factors.quotation;
        }
        for (proposal & c : candidates_) {
            c.probability *= factors.drafter;
        }
    }

    // Lets a token that both propose be the same child in both lists.
    void unite() {
        for (proposal & c : candidates_) {
            for (proposal & q : quoted_) {
                if (q.token == c.token) {
                    c.entry       = q.entry;
                    c.probability = std::max(q.probability, c.probability);
                    q             = c;
                }
            }
        }
    }

    // Pushes a node's next best child into the heap. Calibrated probabilities may increase with the rank, so the
    // child's value is capped at that of the previous sibling.
    void push_child(int32_t parent, float max_value) {
        const node & n = tree_.nodes[parent];
        children &   c = children_[parent];
        if (n.depth >= limits_.depth || c.n_pushed >= limits_.max_children) {
            return;
        }
        const bool quoted = n_quoted(n) > 0;
        if (quoted && c.proposed.empty()) {
            propose(parent);
        }
        if (c.n_pushed >= (quoted ? (int32_t) c.proposed.size() : n_candidates(n))) {
            return;
        }
        proposal next = quoted ? c.proposed[c.n_pushed] : candidate_below(parent, c.n_pushed);
        if (std::isnan(next.probability)) {
            return;
        }
        if (quoted) {   // the drafter and the quotation can be sure of different tokens, and one is wrong
            next.probability = std::min(next.probability, c.left);
            c.left -= next.probability;
        }
        ++c.n_pushed;
        next.value = std::min(next.probability * n.value, max_value);
        heap_.push(next);
    }

    const draft &         draft_;
    const growth_limits & limits_;
    tree                  tree_;
    ranking               ranks_;
    std::vector<children> children_;              // [tree nodes]
    std::vector<proposal> quoted_, candidates_;   // below the node whose children are listed

    std::priority_queue<node, std::vector<node>, less_likely> heap_;
};

}   // namespace

void sort_candidates(draft & d) {
    std::vector<std::pair<float, int32_t>> order(d.top_k);
    for (int32_t i = 0; i < d.positions(); ++i) {
        int32_t * ids   = d.ids.data() + (size_t) i * d.top_k;
        float *   probs = d.probs.data() + (size_t) i * d.top_k;
        for (int32_t rank = 0; rank < d.top_k; ++rank) {
            order[rank] = { probs[rank], ids[rank] };
        }
        std::sort(order.begin(), order.end(), [](const auto & a, const auto & b) {
            return is_likelier(a.first, b.first) || (!is_likelier(b.first, a.first) && a.second < b.second);
        });
        for (int32_t rank = 0; rank < d.top_k; ++rank) {
            std::tie(probs[rank], ids[rank]) = order[rank];
        }
    }
}

tree grow(const draft & d, int32_t anchor, const growth_limits & limits) { return grower(d, anchor, limits).grow(); }

}   // namespace dflash
