#include "engine/slot.h"

#include <algorithm>

namespace dflash {

// ---- experience ----

static std::vector<bool> reached_nodes(const tree & verified, const std::vector<int32_t> & path) {
    std::vector<bool> reached(verified.size());
    for (const int32_t node : path) {
        reached[node] = true;
    }
    return reached;
}

void experience::observe(const tree & verified, const std::vector<int32_t> & path, int32_t drafter) {
    const std::vector<bool> reached = reached_nodes(verified, path);
    for (int32_t i = 1; i < verified.size(); ++i) {
        const node & n = verified.nodes[i];
        if (n.prob > 0 && reached[n.parent]) {   // other nodes were never put to the test
            drafters[drafter].calibration.observe(n.prob, n.first, n.depth, reached[i]);
        }
    }
}

void experience::fade() {
    for (of_drafter & d : drafters) {
        d.calibration.fade(16);
        d.window.fade();
    }
    quotes.fade(16);
}

// ---- drafts, pass and result ----

void slot_drafts::clear() {
    tree   = {};
    block  = {};
    drawn  = {};
    quoted = {};
}

void slot_drafts::begin(int32_t token) {
    clear();
    anchor = token;
    tree.nodes.push_back(node::root(anchor));
    drafter = n_denoised = 0;
    pass_ms              = 0;
}

void slot_result::clear() {
    emitted.clear();
    probs.clear();
    n_prompt_probs = 0;
    verified.clear();
    update = {};
    ended  = false;
}

// ---- slot ----

void slot::begin(dflash::request && r) {
    request            = std::move(r);
    drafts             = {};
    stats              = {};
    stats.n_prompt     = (int32_t) request.prompt.size();
    stats.n_prediction = request.predicted.size();
    result.error.clear();
    t_start_us = t_first_us = 0;
}

void slot::begin_pass() {
    pass = {};
    result.clear();
}

void slot::start_reading(int64_t now_us) {
    if (!t_start_us) {
        t_start_us       = now_us;
        stats.t_queue_ms = (t_start_us - t_submit_us) / 1000.0;
    }
}

void slot::count_walk(int32_t drafted_by) {
    const tree &                 t         = drafts.tree;
    const std::vector<int32_t> & path      = pass.walked.path;
    const int32_t                n_drafted = t.size() - 1, n_accepted = (int32_t) path.size() - 1;
    result.update.n_accepted = n_accepted;
    result.update.n_drafted  = n_drafted;
    result.update.n_depth    = t.depth();
    result.update.n_denoised = drafts.n_denoised;
    result.update.draft_ms   = drafts.pass_ms;
    result.update.reason     = text_of(drafts.reason);
    if (request.return_drafts) {
        result.verified.set(t, drafted_by, drafts.quoted, path);
    }
    ++stats.n_passes;
    if (n_drafted == 0) {
        ++stats.n_plain;
        return;
    }
    stats.n_drafted += n_drafted;
    stats.n_accepted += n_accepted;
    const std::vector<bool> reached = reached_nodes(t, path);
    for (int32_t i = 1; i < t.size(); ++i) {
        if (t.nodes[i].candidate >= 0 && drafted_by == DFLASH_BY_MTP) {
            ++stats.n_mtp_drafted;
            stats.n_mtp_accepted += reached[i];
        } else if (t.nodes[i].candidate < 0) {
            const size_t source = (size_t) drafts.quoted.entries[t.nodes[i].entry].kind.source;
            ++stats.n_lookup_drafted;
            ++stats.quoted_drafted[source];
            stats.n_lookup_accepted += reached[i];
            stats.quoted_accepted[source] += reached[i];
        }
    }
    for (int32_t d = 1; d <= result.update.n_depth; ++d) {
        ++stats.depth_drafted[d];
        stats.depth_accepted[d] += d <= n_accepted;
    }
}

const dflash_update & slot::update(double verify_ms) {
    dflash_update & u = result.update;
    u.slot            = id;
    u.verify_ms       = verify_ms;
    u.state           = state;
    u.n_tokens        = (int32_t) result.emitted.size();
    u.tokens          = result.emitted.data();
    u.error           = failed() ? result.error.c_str() : nullptr;
    u.n_past          = n_past();
    if (request.n_probs > 0) {
        u.probs = result.probs.view(result.n_prompt_probs);
    }
    if (request.return_drafts) {
        u.tree = result.verified.view();
    }
    return u;
}

int32_t count_writing(const std::vector<slot> & slots) {
    return (int32_t) std::count_if(slots.begin(), slots.end(), [](const slot & s) { return s.writing(); });
}

}   // namespace dflash
