#include "engine/slot.h"

#include <algorithm>

namespace dflash {

// ---- what can be kept ----

int32_t kept_tokens(int32_t reach, const std::vector<checkpoint> & checkpoints, int32_t n_common) {
    if (n_common >= reach) {
        return n_common;
    }
    int32_t kept = 0;
    for (const checkpoint & c : checkpoints) {
        kept = c.at <= n_common ? std::max(kept, c.at) : kept;
    }
    return kept;
}

// ---- experience ----

static std::vector<bool> reached_nodes(const tree & verified, const std::vector<int32_t> & path) {
    std::vector<bool> reached(verified.size());
    for (const int32_t node : path) {
        reached[node] = true;
    }
    return reached;
}

void experience::observe(const tree & verified, const std::vector<int32_t> & path, const quotation & quoted) {
    const std::vector<bool> reached  = reached_nodes(verified, path);
    int32_t                 n_quoted = 0, n_accepted = 0;
    for (int32_t i = 1; i < verified.size(); ++i) {
        const node & n = verified.nodes[i];
        if (n.prob > 0 && reached[n.parent]) {   // other nodes were never put to the test
            odds.observe(n.prob, n.first, n.depth, reached[i]);
        }
        n_quoted   = std::max(n_quoted, n.quoted);
        n_accepted = reached[i] ? std::max(n_accepted, n.quoted) : n_accepted;
    }
    if (n_quoted > 0) {
        (quoted.predicted ? predictions : quotes).observe(quoted.matched, n_quoted, n_accepted);
    }
}

void experience::fade() {
    odds.fade(16);
    quotes.fade(8);
    predictions.fade(8);
}

// ---- slot ----

void slot::begin_pass() {
    n_rows = 0;
    reads = samples = ended = false;
    emitted.clear();
    probs.clear();
    n_prompt_probs = 0;
    verified.clear();
    update = {};
}

void slot::begin_tree(int32_t token) {
    clear_tree();
    anchor = token;
    next.nodes.push_back(node::root(anchor));
    n_denoised = 0;
    draft_ms   = 0;
}

void slot::clear_tree() {
    next   = {};
    draft  = {};
    drawn  = {};
    quoted = {};
}

void slot::count_walk(const tree & t) {
    const int32_t n_drafted = t.size() - 1, n_accepted = (int32_t) walked.path.size() - 1;
    update.n_accepted = n_accepted;
    update.n_drafted  = n_drafted;
    update.n_depth    = t.depth();
    update.n_denoised = n_denoised;
    update.draft_ms   = draft_ms;
    update.reason     = reason;
    if (return_drafts) {
        verified.set(t, quoted, walked.path);
    }
    ++stats.n_passes;
    if (n_drafted == 0) {
        ++stats.n_plain;
        return;
    }
    stats.n_drafted += n_drafted;
    stats.n_accepted += n_accepted;
    const std::vector<bool> reached = reached_nodes(t, walked.path);
    for (int32_t i = 1; i < t.size(); ++i) {
        if (t.nodes[i].candidate < 0) {
            ++stats.n_lookup_drafted;
            stats.n_lookup_accepted += reached[i];
        }
    }
    for (int32_t d = 1; d <= update.n_depth; ++d) {
        ++stats.depth_drafted[d];
        stats.depth_accepted[d] += d <= n_accepted;
    }
}

}   // namespace dflash
