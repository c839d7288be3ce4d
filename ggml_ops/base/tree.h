// A draft tree: what the target verifies at once.

#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace dflash {

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
    int32_t depth() const {
        int32_t most = 0;
        for (const node & n : nodes) {
            most = std::max(most, n.depth);
        }
        return most;
    }
    bool is_chain() const {
        for (int32_t i = 1; i < size(); ++i) {
            if (nodes[i].parent != i - 1) {
                return false;
            }
        }
        return true;
    }
    // The child of `parent` that carries `token`, -1 if there is none.
    int32_t child(int32_t parent, int32_t token) const {
        for (int32_t i = parent + 1; i < size(); ++i) {
            if (nodes[i].parent == parent && nodes[i].token == token) {
                return i;
            }
        }
        return -1;
    }
};

}   // namespace dflash
