#include "tree.h"

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

int32_t tree::child(int32_t parent, int32_t token) const {
    for (int32_t i = parent + 1; i < size(); ++i) {
        if (nodes[i].parent == parent && nodes[i].token == token) {
            return i;
        }
    }
    return -1;
}

namespace {

// The candidate that is the rank-th best below a parent. Marginals come sorted; lattice rows do not.
int32_t ranked(const draft & d, int32_t depth, int32_t pred, int32_t rank) {
    if (!d.lattice) {
        return rank;
    }
    const float * p = d.row(depth, pred);
    std::vector<int32_t> order(d.top_k);
    std::iota(order.begin(), order.end(), 0);
    std::partial_sort(order.begin(), order.begin() + rank + 1, order.end(), [p](int32_t a, int32_t b) { return p[a] != p[b] ? p[a] > p[b] : a < b; });
    return order[rank];
}

struct entry {
    float   value;
    int32_t parent;
    int32_t rank;
    int32_t candidate;
    float   prob;

    // Ties: the shallower parent, then the better rank, so that trees are reproducible.
    bool operator<(const entry & o) const {
        if (value != o.value) { return value < o.value; }
        if (parent != o.parent) { return parent > o.parent; }
        return rank > o.rank;
    }
};

}  // namespace

tree grow(const draft & d, int32_t anchor, int32_t budget, int32_t width) {
    tree t;
    t.nodes.push_back({ anchor, -1, 0, 0, 1.0f, 1.0f });
    width = std::min(width, d.top_k);

    std::priority_queue<entry> heap;
    const auto push = [&](int32_t parent, int32_t rank) {
        const node & n = t.nodes[parent];
        if (n.depth >= d.positions() || rank >= width) {
            return;
        }
        const int32_t candidate = ranked(d, n.depth + 1, n.candidate, rank);
        const float   prob      = d.row(n.depth + 1, n.candidate)[candidate];
        heap.push({ n.value * prob, parent, rank, candidate, prob });
    };

    push(0, 0);
    while (t.size() < budget && !heap.empty()) {
        const entry   e     = heap.top();
        const int32_t depth = t.nodes[e.parent].depth + 1;
        heap.pop();
        t.nodes.push_back({ d.id(depth, e.candidate), e.parent, depth, e.candidate, e.prob, e.value });
        push(t.size() - 1, 0);
        push(e.parent, e.rank + 1);
    }
    return t;
}

}  // namespace dflash
