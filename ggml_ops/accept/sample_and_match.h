// Sample-and-match acceptance: a pure function of a tree and a sampling function.
//
// The target samples with the sampler chain that plain decoding would use; a draft token counts only if it *is* that
// sample. So the output has the target's distribution for every sampler and temperature by construction, and a seed
// gives the text of plain decoding.

#pragma once

#include "base/tree.h"

namespace dflash {

struct walk_result {
    std::vector<int32_t> path;              // accepted nodes, the anchor (0) first
    std::vector<int32_t> tokens;            // sampled tokens: those of path[1..], then the bonus; same size as path
    bool                 stopped = false;   // the last token ended the answer
};

// sample(node) -> token: samples once at this node and adds the token to the sampler's state.
// ends(token) -> bool: whether generation stops at this token.
template <class Sample, class Ends> walk_result walk(const tree & t, Sample && sample, Ends && ends) {
    walk_result r;
    for (int32_t at = 0; at >= 0;) {
        const int32_t token = sample(at);
        r.path.push_back(at);
        r.tokens.push_back(token);
        if (ends(token)) {
            r.stopped = true;
            break;
        }
        at = t.child(at, token);
    }
    return r;
}

}   // namespace dflash
