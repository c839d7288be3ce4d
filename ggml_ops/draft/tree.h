// Draft trees: pure functions, no llama.cpp types.

#pragma once

#include "draft/calibration.h"
#include "draft/quotation.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dflash {

// What one drafter pass says about the next `length - 1` positions of one slot, regardless of the block's layout:
// position d is d tokens after the anchor.
//
// DFlash: marginals. Position d (1-based) has `top_k` candidates, best first, with probs[(d - 1) * top_k + r]. With a
// lattice: probs[((d - 1) * top_k + pred) * top_k + r] is the probability of candidate r at position d given candidate
// `pred` at position d - 1 (at position 1: given the anchor; all `pred` rows are equal).
struct draft {
    int32_t              length  = 0;   // the anchor and the drafted positions; <= 1: nothing drafted
    int32_t              top_k   = 0;
    bool                 lattice = false;
    std::vector<int32_t> ids;     // [length - 1, top_k]
    std::vector<float>   probs;   // [length - 1, top_k] or [length - 1, top_k, top_k]

    int32_t positions() const { return length - 1; }
    int32_t id(int32_t depth, int32_t rank) const { return ids[(size_t) (depth - 1) * top_k + rank]; }
    // The candidates' probabilities at `depth` below a node with candidate index `pred`: [top_k].
    const float * row(int32_t depth, int32_t pred) const {
        const size_t i = (size_t) (depth - 1) * top_k;
        return probs.data() + (lattice ? (i + pred) * top_k : i);
    }
};

struct node {
    int32_t token     = -1;
    int32_t parent    = -1;     // index into the tree, -1 for the anchor
    int32_t depth     = 0;      // 0 for the anchor
    int32_t candidate = -1;     // index into the draft's candidates at this depth, -1: not among them
    float   prob      = 0;      // draft probability given the parent, 0: not among the candidates
    float   value     = 0;      // probability that the walk gets here: product over the path
    bool    first     = true;   // the likeliest of the parent's candidates
    int32_t entry     = -1;     // the path from the anchor leads to this entry of the quotation, -1: it is not quoted

    // Node 0 of every tree: the anchor, which is certain.
    static node root(int32_t anchor) {
        node n;
        n.token     = anchor;
        n.candidate = n.entry = 0;
        n.prob = n.value = 1;
        return n;
    }
};

// Node 0 is the anchor; parents come before their children. A chain is a tree with one leaf.
struct tree {
    std::vector<node> nodes;

    int32_t size() const { return (int32_t) nodes.size(); }
    int32_t depth() const;
    bool    is_chain() const;
    // The child of `parent` that carries `token`, -1 if there is none.
    int32_t child(int32_t parent, int32_t token) const;
};

// The limits of a tree's growth.
struct growth {
    int32_t             budget       = 1;           // nodes, including the anchor
    int32_t             max_children = 1;           // of a node; 1 gives a chain
    int32_t             depth        = INT32_MAX;   // longest path below the anchor
    const calibration * odds         = nullptr;     // null: the drafter's probabilities are used as they are
    const quotation *   quoted       = nullptr;     // its entries are candidates, too; or null
};

// The anchor and the best `budget - 1` prefixes: a best-first heap over (parent, rank), DDTree (arXiv 2604.12989). With
// a lattice, each child's probability is conditional on its parent. A quotation adds candidates to the nodes along it.
// Nodes are in descending order of value, so the first n nodes are the best tree of n nodes.
tree grow(const draft & d, int32_t anchor, const growth & rules);

}   // namespace dflash
