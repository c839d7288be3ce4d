// How draft trees grow: pure functions, no llama.cpp types.

#pragma once

#include "base/tree.h"
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
    int32_t              length        = 0;   // the anchor and the drafted positions; <= 1: nothing drafted
    int32_t              top_k         = 0;
    bool                 lattice       = false;
    bool                 follows_first = false;   // a position's candidates follow the first ones of those before
    std::vector<int32_t> ids;                     // [length - 1, top_k]
    std::vector<float>   probs;                   // [length - 1, top_k] or [length - 1, top_k, top_k]

    int32_t positions() const { return length - 1; }
    int32_t id(int32_t depth, int32_t rank) const { return ids[(size_t) (depth - 1) * top_k + rank]; }
    // The candidates' probabilities at `depth` below a node with candidate index `pred`: [top_k].
    const float * row(int32_t depth, int32_t pred) const {
        const size_t i = (size_t) (depth - 1) * top_k;
        return probs.data() + (lattice ? (i + pred) * top_k : i);
    }
};

// Puts the candidates of a draft without a lattice in order, equal ones by id, those without a probability (NaN) last:
// a device returns the largest of a row in any order. A lattice needs none, its rows are sorted as a tree grows.
void sort_candidates(draft & d);

// The limits of a tree's growth.
struct growth_limits {
    int32_t                     budget       = 1;           // nodes, including the anchor
    int32_t                     max_children = 1;           // of a node; 1 gives a chain
    int32_t                     depth        = INT32_MAX;   // longest path below the anchor
    const dflash::calibration * calibration  = nullptr;     // null: the drafter's probabilities are used as they are
    const quotation *           quoted       = nullptr;     // its entries are candidates, too; or null
};

// The anchor and the best `budget - 1` prefixes: a best-first heap over (parent, rank), DDTree (arXiv 2604.12989). With
// a lattice, each child's probability is conditional on its parent. A quotation adds candidates to the nodes along it.
// Candidates without a probability (NaN) are none. Nodes are in descending order of value, so the first n nodes are the
// best tree of n nodes.
tree grow(const draft & d, int32_t anchor, const growth_limits & limits);

}   // namespace dflash
