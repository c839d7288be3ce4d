#include "engine/engine.h"

#include "base/abort_guard.h"
#include "llama-ext.h"
#include "llama/tree.h"
#include "base/log.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

namespace dflash {

namespace {

constexpr int32_t FLUSH_READING = 256;   // tap rows a slot may hold back before a pass injects them: long prompts in
constexpr int32_t FLUSH_RESTING = 64;    // large passes, slots that do not draft now and then
constexpr int32_t ROW_GROUP     = 4;
constexpr int32_t REFRESH       = 32;   // steps between two plain ones while drafts gain little: what plain decoding
                                        // costs must not be an old measurement
constexpr int32_t SAVE_TAIL =
    16;   // tokens of a prompt that a saved state leaves out: the next prompt rarely repeats the very end
constexpr int32_t LOOKUP_LENGTH = 32;   // tokens of a quotation, if it could all be verified

// Why the controller chose what it chose; docs/budget.md explains them.
constexpr const char * REASON_NONE    = "no drafter";
constexpr const char * REASON_OFF     = "drafting is off";
constexpr const char * REASON_FIXED   = "fixed budget";
constexpr const char * REASON_PAYS    = "drafting pays";
constexpr const char * REASON_PLAIN   = "plain decoding is faster";
constexpr const char * REASON_REFRESH = "plain step to measure";
constexpr const char * REASON_QUOTES  = "prompt lookup alone";
constexpr const char * REASON_FAILED  = "the drafter failed";

class stopwatch {
  public:
    // Milliseconds since the last call, added to `to`.
    double lap(double & to) {
        const int64_t now = llama_time_us();
        const double  ms  = (now - at_) / 1000.0;
        at_               = now;
        to += ms;
        return ms;
    }

  private:
    int64_t at_ = llama_time_us();
};

}   // namespace

void pending_taps::truncate(int32_t end, size_t width) {
    rows = std::clamp(end - pos, 0, rows);
    data.resize(rows * width);
    if (rows == 0) {
        pos = std::min(pos, end);
    }
}

// ---- slots ----

const slot & engine::at(int32_t i) const {
    if (i < 0 || i >= (int32_t) slots_.size()) {
        throw status_error(
            DFLASH_ERROR_ARG, "slot is " + std::to_string(i) + ", must be 0.." + std::to_string(slots_.size() - 1));
    }
    return slots_[i];
}

slot & engine::idle_slot(int32_t i) {
    if (at(i).running()) {
        throw status_error(
            DFLASH_ERROR_BUSY, "slot " + std::to_string(i) + " is running: wait for its end or cancel it");
    }
    return slots_[i];
}

void engine::check_tokens(const dflash_request & r) const {
    if (!r.tokens || r.n_tokens < 1) {
        throw status_error(DFLASH_ERROR_ARG, "tokens is empty: a prompt needs at least one token");
    }
    const int32_t n_vocab = llama_vocab_n_tokens(vocab());
    for (int32_t i = 0; i < r.n_tokens; ++i) {
        if (r.tokens[i] < 0 || r.tokens[i] >= n_vocab) {
            throw status_error(DFLASH_ERROR_ARG, "tokens[" + std::to_string(i) + "] is " + std::to_string(r.tokens[i]) +
                                                     ", outside the vocabulary of " + std::to_string(n_vocab));
        }
    }
    if (r.n_tokens >= n_ctx_slot_) {
        throw status_error(DFLASH_ERROR_ARG, "the prompt has " + std::to_string(r.n_tokens) +
                                                 " tokens, a slot's context is " + std::to_string(n_ctx_slot_) +
                                                 ": shorten it or start with a larger -c");
    }
    if (r.n_predict < -1) {
        throw status_error(DFLASH_ERROR_ARG, "n_predict is " + std::to_string(r.n_predict) + ", must be >= -1");
    }
    const auto check = [](const char * field, int32_t value, int32_t lo, int32_t hi) {
        if (value < lo || value > hi) {
            throw status_error(DFLASH_ERROR_ARG, std::string(field) + " is " + std::to_string(value) + ", must be " +
                                                     std::to_string(lo) + ".." + std::to_string(hi));
        }
    };
    check("budget", r.budget, 0, DFLASH_MAX_NODES);
    check("draft", r.draft, -1, DFLASH_DRAFT_TREE);
    check("accept", r.accept, -1, DFLASH_ACCEPT_BLOCK);
    check("draft_n_max", r.draft_n_max, 0, DFLASH_MAX_NODES - 1);
    if (r.accept == DFLASH_ACCEPT_BLOCK && !(drafter_ && drafter_->lattice())) {
        throw status_error(DFLASH_ERROR_ARG,
            "accept is block, which needs a DFlash 2 drafter: only its lattice has joint probabilities");
    }
}

void engine::check(const dflash_request & r) const {
    check_tokens(r);
    sampler(model_.get(), parse_sampling(model_.get(), r.sampling ? r.sampling : ""));
}

void engine::submit(int32_t i, const dflash_request & r) {
    slot & s = idle_slot(i);
    check_tokens(r);
    const common_params_sampling sampling = parse_sampling(model_.get(), r.sampling ? r.sampling : "");
    auto                         chain    = std::make_unique<sampler>(model_.get(), sampling);

    s.prompt.assign(r.tokens, r.tokens + r.n_tokens);
    s.chain            = std::move(chain);
    s.greedy           = sampling.temp <= 0.0f;
    s.seen             = last_seen_[s.greedy];
    s.n_predict        = r.n_predict;
    const int32_t mode = !drafter_ || !no_draft_.empty() ? DFLASH_DRAFT_OFF : r.draft >= 0 ? r.draft : draft_mode_;
    s.budget           = mode == DFLASH_DRAFT_OFF ? 1 : r.budget ? r.budget : budget_;
    s.block            = mode != DFLASH_DRAFT_OFF && (r.accept >= 0 ? r.accept : accept_) == DFLASH_ACCEPT_BLOCK &&
              s.chain->gives_distribution();
    s.width      = mode == DFLASH_DRAFT_TREE && no_tree_.empty() && !s.block ? DFLASH_MAX_NODES : 1;
    s.depth      = r.draft_n_max ? std::min(r.draft_n_max, draft_n_max_) : draft_n_max_;
    s.reason     = "";
    s.n_denoised = 0;
    s.draft_ms   = 0;
    s.stats      = {};
    s.drafted    = {};
    s.next       = {};
    s.anchor     = -1;
    s.error.clear();
    for (const int32_t token : s.prompt) {
        s.chain->accept_prompt(token);
    }

    int32_t n_common = 0;
    if (r.cache_prompt) {
        const int32_t n =
            std::min(s.n_past(), r.n_tokens - 1);   // the last token is always read: its logits are needed
        while (n_common < n && s.tokens[n_common] == s.prompt[n_common]) {
            ++n_common;
        }
    }
    s.stats.n_prompt = r.n_tokens;
    s.stats.n_cached = reuse_prefix(s, n_common);
    s.save_at =
        is_recurrent() && r.cache_prompt && r.n_tokens - s.stats.n_cached > 4 * SAVE_TAIL ? r.n_tokens - SAVE_TAIL : 0;
    switch_.new_text();
    s.t_submit_us = llama_time_us();
    s.t_start_us = s.t_first_us = 0;
    s.state                     = DFLASH_READING;
}

// Keep the first n_common tokens of what the slot holds. Returns how many really stayed.
int32_t engine::reuse_prefix(slot & s, int32_t n_common) {
    llama_memory_t mem   = llama_get_memory(ctx_.get());
    const int32_t  n_swa = llama_model_n_swa(model_.get());
    if (n_common > 0 && n_common < s.n_past() && !go_back(s, n_common)) {
        n_common = 0;
    }
    // A sliding-window cache has dropped what lies outside the window of its newest position.
    if (n_common > 0 && !is_recurrent() &&
        llama_memory_seq_pos_min(mem, s.id) > std::max(0, n_swa > 0 ? n_common - n_swa : 0)) {
        n_common = 0;
    }
    if (n_common == 0) {
        forget(s);
        return 0;
    }
    if (n_common < s.n_past()) {
        s.text.reset();
    }
    s.tokens.resize(n_common);
    if (s.saved_at > n_common) {
        s.saved_at = 0;
    }
    if (drafter_) {
        s.taps.truncate(n_common, drafter_->tap_width());
        if (drafter_->next_pos(s.id) > n_common) {
            drafter_->rewind(s.id, n_common);
        }
        if (s.taps.rows == 0) {
            s.taps.clear(drafter_->next_pos(s.id));
        }
    }
    return n_common;
}

// Forget what follows the first n_common tokens. Recurrent memory goes back no further than to the last tree's root, or
// to its saved state: n_common says how many tokens stayed. False: none can.
bool engine::go_back(slot & s, int32_t & n_common) {
    llama_memory_t mem = llama_get_memory(ctx_.get());
    if (llama_memory_seq_rm(mem, s.id, n_common, -1)) {
        return true;
    }
    if (s.saved_at == 0 || s.saved_at > n_common ||
        llama_state_seq_set_data_ext(
            ctx_.get(), s.saved.data(), s.saved.size(), s.id, LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY) == 0) {
        return false;
    }
    n_common = s.saved_at;
    return llama_memory_seq_rm(mem, s.id, n_common, -1);   // of the attention layers
}

void engine::save_state(slot & s) {
    s.saved.resize(llama_state_seq_get_size_ext(ctx_.get(), s.id, LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY));
    const size_t n = llama_state_seq_get_data_ext(
        ctx_.get(), s.saved.data(), s.saved.size(), s.id, LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY);
    s.saved_at = n > 0 ? s.n_past() : 0;
}

void engine::forget(slot & s) {
    s.saved_at = 0;
    llama_memory_seq_rm(llama_get_memory(ctx_.get()), s.id, -1, -1);
    s.tokens.clear();
    s.text.reset();
    s.taps.clear(0);
    if (drafter_) {
        drafter_->rewind(s.id, 0);
    }
}

void engine::cancel(int32_t i) {
    at(i);
    slot & s = slots_[i];
    if (s.running()) {
        finish(s, DFLASH_IDLE);
    }
}

void engine::clear(int32_t i) { forget(idle_slot(i)); }

void engine::finish(slot & s, int32_t state) {
    s.state = state;
    s.chain.reset();
    if (s.stats.n_drafted > 0) {
        last_seen_[s.greedy] = s.seen;
        last_seen_[s.greedy].odds.fade(16);
        last_seen_[s.greedy].quotes.fade(8);
    }
    s.next    = {};
    s.drafted = {};
    s.drawn   = {};
    s.quoted  = {};
    if (s.t_first_us) {
        s.stats.t_generate_ms = (llama_time_us() - s.t_first_us) / 1000.0;
    }
}

void engine::fail(slot & s, const std::string & why) {
    s.error = why;
    s.emitted.clear();
    finish(s, DFLASH_FAILED);
    forget(s);
}

// ---- one step ----

int32_t engine::step(dflash_update * updates, int32_t cap) {
    if (!updates || cap < (int32_t) slots_.size()) {
        throw status_error(DFLASH_ERROR_ARG,
            "cap is " + std::to_string(cap) + ", must be at least n_slots (" + std::to_string(slots_.size()) + ")");
    }
    const int64_t t_begin = llama_time_us();
    const double  before  = times_.verify + times_.draft;
    stopwatch     watch;

    plan();
    watch.lap(times_.plan);
    if (n_rows_ == 0) {
        return 0;
    }
    const bool   ok        = verify();
    const double verify_ms = watch.lap(times_.verify);
    if (ok) {
        walk_slots();
        watch.lap(times_.walk);
        learn_costs(verify_ms);
        commit();
        watch.lap(times_.commit);
        draft_and_grow();   // laps its own phases
    }

    int32_t n = 0;
    for (slot & s : slots_) {
        if (s.n_rows == 0) {
            continue;
        }
        s.update.slot      = s.id;
        s.update.verify_ms = verify_ms;
        s.update.state     = s.state;
        s.update.n_tokens  = (int32_t) s.emitted.size();
        s.update.tokens    = s.emitted.data();
        s.update.error     = s.state == DFLASH_FAILED ? s.error.c_str() : nullptr;
        updates[n++]       = s.update;
    }
    ++n_steps_;
    const double step_ms = (llama_time_us() - t_begin) / 1000.0;
    times_.step += step_ms;
    const double other = std::max(0.0, step_ms - (times_.verify + times_.draft - before));
    if (pure_) {
        other_ms_ += 0.05 * (other - other_ms_);
    }
    return n;
}

double engine::plain_rate(int32_t n_slots) const {
    return n_slots / std::max(1e-9, verify_cost_.at(n_slots, n_slots * context_) + other_ms_);
}

// What a pass of trees alone cost, and what it brought if they were drafted.
void engine::learn_costs(double verify_ms) {
    if (pure_) {
        double cells = 0;
        for (const slot & s : slots_) {
            cells += (double) s.n_rows * s.n_past();   // still without the accepted path
        }
        verify_cost_.observe(n_rows_, cells, verify_ms - (n_rows_ == last_rows_ ? 0.0 : rebuild_ms_));
        if (drafted_ms_ > 0) {
            double  tokens  = 0;
            int32_t n_slots = 0;
            for (const slot & s : slots_) {
                tokens += s.n_rows > 0 ? (double) s.walked.tokens.size() : 0;
                n_slots += s.n_rows > 0;
            }
            switch_.drafted(n_slots, tokens - n_slots, promised_ - n_slots, drafted_ms_ + verify_ms + other_ms_,
                plain_rate(n_slots));
        }
    }
    drafted_ms_ = 0;
    last_rows_  = n_rows_;
}

// 1. Rows of this pass: the trees of slots that write, then chunks of prompts, oldest request first.
void engine::plan() {
    llama_batch_ext_clear(batch_.get());
    n_rows_ = 0;
    for (slot & s : slots_) {
        s.n_rows = 0;
        s.reads = s.samples = false;
        s.emitted.clear();
        s.update = {};
    }
    const int32_t size = padded_size();
    for (slot & s : slots_) {
        if (s.state == DFLASH_WRITING) {
            s.samples = true;
            add_tree(s, s.next, true, s.next.size() > 1, size);
        }
    }
    n_tree_rows_ = n_rows_;

    std::vector<slot *> reading;
    for (slot & s : slots_) {
        if (s.state == DFLASH_READING) {
            reading.push_back(&s);
        }
    }
    std::sort(
        reading.begin(), reading.end(), [](const slot * a, const slot * b) { return a->t_submit_us < b->t_submit_us; });
    for (slot * s : reading) {
        const int32_t end = s->n_past() < s->save_at ? s->save_at : (int32_t) s->prompt.size();
        const int32_t n   = std::min(end - s->n_past(), n_rows_max_ - n_rows_);
        s->first_row      = n_rows_;
        s->reads          = n > 0;
        s->samples        = n > 0 && s->n_past() + n == (int32_t) s->prompt.size() && s->n_predict != 0;
        for (int32_t i = 0; i < n; ++i) {
            add_row(*s, s->prompt[s->n_past() + i], s->n_past() + i, s->samples && i == n - 1);
        }
        if (n > 0 && !s->t_start_us) {
            s->t_start_us       = llama_time_us();
            s->stats.t_queue_ms = (s->t_start_us - s->t_submit_us) / 1000.0;
        }
    }
    pure_ = n_rows_ == n_tree_rows_;
    pad_rows();
}

// A tree's rows; without `all_outputs` only the last one has logits. A recurrent state rolls a chain back as it does a
// tree. `size`: rows that the tree takes up in the pass.
void engine::add_tree(slot & s, const tree & t, bool all_outputs, bool rolls_back, int32_t size) {
    s.first_row = n_rows_;
    s.open      = !t.is_chain() || (tapes_ && (rolls_back || size > t.size()));
    for (int32_t i = 0; i < t.size(); ++i) {
        const node & n = t.nodes[i];
        add_row(s, n.token, s.n_past() + n.depth, all_outputs || i == t.size() - 1);
        if (s.open) {
            llama_batch_ext_set_parent(batch_.get(), n_rows_ - 1, i == 0 ? LLAMA_PARENT_NONE : s.first_row + n.parent);
        }
    }
    for (int32_t i = t.size(); i < size; ++i) {
        push_row(s.id, t.nodes[0].token, s.n_past(), false);
        llama_batch_ext_set_parent(batch_.get(), n_rows_ - 1, LLAMA_PARENT_PADDING);
    }
}

// Delta-net layers take trees of one size; those of each other size are passes of their own. Where one pass is cheaper,
// smaller trees are padded.
int32_t engine::padded_size() const {
    std::map<int32_t, int32_t> sizes;
    int32_t                    n_slots = 0, n_past = 0;
    for (const slot & s : slots_) {
        if (s.state == DFLASH_WRITING) {
            ++sizes[s.next.size()];
            ++n_slots;
            n_past = std::max(n_past, s.n_past());
        }
    }
    if (!tapes_ || sizes.size() < 2 || verify_cost_.empty()) {
        return 0;
    }
    const int32_t size  = sizes.rbegin()->first;
    double        apart = 0;
    for (const auto & [rows, n] : sizes) {
        apart += verify_cost_.at(rows * n, 0);
    }
    return n_past + size <= n_ctx_slot_ && n_slots * size <= n_rows_max_ && verify_cost_.at(n_slots * size, 0) < apart
               ? size
               : 0;
}

// Memory for what a recurrent target needs to roll back trees of at most n_rows rows.
void engine::need_tapes(int32_t n_rows) {
    if (tape_rows_ == 0) {
        if (!llama_memory_set_tree_capacity(llama_get_memory(ctx_.get()), n_rows)) {
            throw status_error(
                DFLASH_ERROR_MEMORY, "no memory for trees of " + std::to_string(n_rows) + " nodes: " + logged_error());
        }
        tape_rows_ = n_rows;
    }
}

// Keeps the path of a verified tree in the target's memory and among the slot's tokens, frees the rest. False: the
// memory can't.
bool engine::keep_path(slot & s, const tree & t, const std::vector<int32_t> & path) {
    for (const int32_t node : path) {
        s.tokens.push_back(t.nodes[node].token);
    }
    llama_memory_t mem = llama_get_memory(ctx_.get());
    if (s.open) {
        return llama_memory_seq_commit(mem, s.id, path.data(), (int32_t) path.size());
    }
    // A chain's accepted rows are its first ones.
    return (int32_t) path.size() == t.size() || llama_memory_seq_rm(mem, s.id, s.n_past(), -1);
}

void engine::add_row(slot & s, int32_t token, int32_t pos, bool output) {
    push_row(s.id, token, pos, output);
    ++s.n_rows;
}

// The CPU's repacked matrix products take rows in groups of 4 and the rest one by one: 15 rows cost more than 16
// (measured at load, see measure_costs). Rows of a sequence that nobody reads fill the last group.
void engine::pad_rows() {
    n_pad_rows_ = 0;
    if (pad_seq_ < 0 || n_rows_ < ROW_GROUP || n_rows_ % ROW_GROUP < 2) {
        return;
    }
    while (n_rows_ % ROW_GROUP != 0 && n_rows_ < n_rows_max_) {
        push_row(pad_seq_, 0, n_pad_rows_++, false);
    }
}

void engine::push_row(int32_t seq, int32_t token, int32_t pos, bool output) {
    const int32_t i = llama_batch_ext_add_token(batch_.get(), seq, token);
    if (i != n_rows_ || !llama_batch_ext_set_pos(batch_.get(), i, &pos) ||
        !llama_batch_ext_set_output_logits(batch_.get(), i, output)) {
        throw status_error(DFLASH_ERROR_INTERNAL, "row " + std::to_string(n_rows_) + " was refused by the batch");
    }
    ++n_rows_;
}

// The pass over the rows in batch_. Returns llama_process()'s code.
int engine::process() {
    const abort_guard guard(abort_guard::phase::pass);
    const int         rc = llama_process(ctx_.get(), LLAMA_PROCESS_TYPE_DECODE, batch_.get());
    llama_synchronize(ctx_.get());
    return rc;
}

void engine::process_or_throw(const char * what) {
    if (const int rc = process()) {
        throw status_error(
            DFLASH_ERROR_COMPUTE, std::string(what) + ": a target pass failed (code " + std::to_string(rc) + ")");
    }
}

// 2. One target forward over all rows. On failure every slot of the pass has lost its state.
bool engine::verify() {
    interrupted_ = false;
    const int rc = process();
    if (n_pad_rows_ > 0) {
        llama_memory_seq_rm(llama_get_memory(ctx_.get()), pad_seq_, -1, -1);
    }
    if (rc == 0) {
        ++n_passes_;
        n_row_total_ += n_rows_ - n_pad_rows_;
        return true;
    }
    const std::string why = rc == 2   ? "the pass was interrupted"
                            : rc == 1 ? "no room in the KV cache"
                                      : "a target pass failed (code " + std::to_string(rc) + ")";
    for (slot & s : slots_) {
        if (s.n_rows > 0) {
            fail(s, why);
        }
    }
    return false;
}

// 3. Per slot, with its own sampler chain: sample at a node, descend while a child carries the sample. The last row of
// a prompt is a tree of one node.
void engine::walk_slots() {
    static const tree root{ { { -1, -1, 0, 0, 1.0f, 1.0f } } };
    for (slot & s : slots_) {
        s.walked = {};
        if (!s.samples) {
            continue;
        }
        const tree &  t    = s.reads ? root : s.next;
        const int32_t row  = s.reads ? s.first_row + s.n_rows - 1 : s.first_row;
        const auto    ends = [&](int32_t token) { return llama_vocab_is_eog(vocab(), token); };
        try {
            if (s.block && !s.reads && t.size() > 1) {
                s.walked = block_walk(s.drawn, *s.chain, ctx_.get(), row, ends);
                count(s, t);
                continue;
            }
            s.walked = walk(
                t,
                [&](int32_t node) {
                    const llama_token token = s.chain->sample(ctx_.get(), row + node);
                    s.chain->accept(token);
                    return token;
                },
                ends);
        } catch (const std::exception & e) {
            fail(s, e.what());
            continue;
        }
        count(s, t);
    }
}

void engine::count(slot & s, const tree & t) {
    const walk_result & w        = s.walked;
    const int32_t       accepted = (int32_t) w.path.size() - 1, drafted = t.size() - 1;
    s.stats.n_generated += (int32_t) w.tokens.size();
    n_generated_ += (int64_t) w.tokens.size();
    s.update.first      = s.reads;
    s.update.n_accepted = accepted;
    s.update.n_drafted  = drafted;
    if (s.reads) {
        s.t_first_us        = llama_time_us();
        s.stats.t_prompt_ms = (s.t_first_us - s.t_start_us) / 1000.0;
        return;
    }
    ++s.stats.n_passes;
    ++chosen_nodes_[t.size()];
    s.update.n_depth    = t.depth();
    s.update.n_denoised = s.n_denoised;
    s.update.draft_ms   = s.draft_ms;
    s.update.reason     = s.reason;
    if (drafted == 0) {
        ++s.stats.n_plain;
        return;
    }
    s.stats.n_drafted += drafted;
    s.stats.n_accepted += accepted;
    std::vector<bool> reached(t.size());
    for (const int32_t node : w.path) {
        reached[node] = true;
    }
    int32_t quoted = 0, quoted_accepted = 0;
    for (int32_t i = 1; i < t.size(); ++i) {
        const node & n = t.nodes[i];
        if (n.prob > 0 && reached[n.parent]) {   // other nodes were never put to the test
            s.seen.odds.observe(n.prob, n.first, n.depth, reached[i]);
        }
        if (n.quoted > 0) {
            quoted          = std::max(quoted, n.quoted);
            quoted_accepted = reached[i] ? std::max(quoted_accepted, n.quoted) : quoted_accepted;
        }
        if (n.candidate < 0) {
            ++s.stats.n_lookup_drafted;
            s.stats.n_lookup_accepted += reached[i];
            ++n_quoted_;
            n_quoted_accepted_ += reached[i];
        }
    }
    if (quoted > 0) {
        s.seen.quotes.observe(s.quoted.matched, quoted, quoted_accepted);
    }
    for (int32_t d = 1; d <= s.update.n_depth; ++d) {
        ++s.stats.depth_drafted[d];
        s.stats.depth_accepted[d] += d <= accepted;
    }
}

// 4. Make the accepted path permanent, forget the rest. The bonus becomes the next anchor.
void engine::commit() {
    for (slot & s : slots_) {
        if (s.n_rows == 0 || s.state == DFLASH_FAILED) {
            continue;
        }
        if (s.reads) {
            keep_taps(s, s.first_row, s.n_rows);
            s.tokens.insert(s.tokens.end(), s.prompt.begin() + s.n_past(), s.prompt.begin() + s.n_past() + s.n_rows);
            if (s.n_past() == s.save_at) {
                save_state(s);
            }
        } else {
            const std::vector<int32_t> & path = s.walked.path;
            const int32_t                n    = (int32_t) path.size();
            for (int32_t from = 0; from < n;) {   // neighbouring rows at once
                int32_t to = from + 1;
                while (to < n && path[to] == path[to - 1] + 1) {
                    ++to;
                }
                keep_taps(s, s.first_row + path[from], to - from);
                from = to;
            }
            if (!keep_path(s, s.next, path)) {
                fail(s, "the target's memory cannot be rolled back");
                continue;
            }
        }
        if (!s.samples) {
            if (s.n_past() == (int32_t) s.prompt.size()) {   // n_predict 0: the prompt was all there was to do
                finish(s, DFLASH_LENGTH);
            }
            continue;
        }
        s.emitted = s.walked.tokens;
        s.anchor  = s.walked.tokens.back();
        s.state   = DFLASH_WRITING;
        if (s.walked.stopped) {
            s.emitted.pop_back();
            finish(s, DFLASH_STOP);
        } else if (s.n_left() <= 0) {
            finish(s, DFLASH_LENGTH);
        } else if (s.n_past() >= n_ctx_slot_) {
            finish(s, DFLASH_CONTEXT);
        }
    }
}

// Copy the taps of rows [row, row + n) of the pass behind what the slot already holds.
void engine::keep_taps(slot & s, int32_t row, int32_t n) {
    if (!drafter_) {
        return;
    }
    const auto & layers = drafter_->weights().target_layers;
    const size_t n_embd = drafter_->weights().n_embd, width = drafter_->tap_width();
    s.taps.data.resize((s.taps.rows + n) * width);
    for (size_t k = 0; k < layers.size(); ++k) {
        const float * src = llama_get_embeddings_layer_inp(ctx_.get(), layers[k]);
        for (int32_t i = 0; i < n; ++i) {
            std::memcpy(s.taps.data.data() + (s.taps.rows + i) * width + k * n_embd, src + (size_t) (row + i) * n_embd,
                n_embd * sizeof(float));
        }
    }
    s.taps.rows += n;
}

// Most draft tokens on a path of the slot's next tree.
int32_t engine::max_depth(const slot & s) const {
    const int32_t room = std::min(s.n_left(), n_ctx_slot_ - s.n_past()) - 1;
    return s.budget == 1 ? 0 : std::clamp(room, 0, DFLASH_MAX_NODES - 1);
}

// Most nodes it may have.
int32_t engine::max_nodes(const slot & s) const {
    if (max_depth(s) == 0) {
        return 1;
    }
    // Siblings take cells of the shared cache until the walk is over.
    const int32_t room =
        std::min(s.width > 1 ? DFLASH_MAX_NODES : 1 + max_depth(s), tapes_ ? tape_rows_ : DFLASH_MAX_NODES);
    return std::min({ s.budget == 0 ? DFLASH_MAX_NODES : s.budget, room, max_tree_rows(), n_ctx_slot_ - s.n_past() });
}

// Most nodes of all trees in the next pass: every other slot may come to its prompt's end there, which takes an output
// too.
int32_t engine::max_tree_rows() const {
    const auto writing =
        std::count_if(slots_.begin(), slots_.end(), [](const slot & s) { return s.state == DFLASH_WRITING; });
    return n_outputs_max_ - ((int32_t) slots_.size() - (int32_t) writing);
}

void engine::set_reason(const char * why) {
    reason_ = why;
    ++chosen_reasons_[why];
}

// 5. and 6. One drafter pass for all slots that continue, then the best tree for each within the chosen count.
void engine::draft_and_grow() {
    stopwatch           watch;
    std::vector<slot *> writing, drafting;
    for (slot & s : slots_) {
        if (s.state != DFLASH_WRITING) {
            continue;
        }
        s.next = {};
        s.next.nodes.push_back({ s.anchor, -1, 0, 0, 1.0f, 1.0f });
        s.drafted    = {};
        s.drawn      = {};
        s.quoted     = {};
        s.n_denoised = 0;
        s.draft_ms   = 0;
        writing.push_back(&s);
        if (max_nodes(s) > 1) {
            drafting.push_back(&s);
        }
    }
    drafted_ms_ = promised_ = context_ = 0;
    for (const slot * s : writing) {
        context_ += (double) s->n_past() / (double) writing.size();
    }
    if (!drafter_) {
        set_reason(REASON_NONE);
        for (slot * s : writing) {
            s->reason = REASON_NONE;
        }
        watch.lap(times_.grow);
        return;
    }
    const int32_t length = choose_block(drafting);
    watch.lap(times_.grow);
    const double draft_ms = draft_blocks(drafting, length);
    watch.lap(times_.draft);
    grow_trees(writing, draft_ms);
    watch.lap(times_.grow);
}

// One pass of the drafter: the taps of accepted rows, and a block of `length` tokens for every slot that drafts.
double engine::draft_blocks(const std::vector<slot *> & drafting, int32_t length) {
    std::vector<draft_job> jobs;
    std::vector<slot *>    jobs_of;
    for (slot & s : slots_) {
        const bool    denoise = length > 1 && std::find(drafting.begin(), drafting.end(), &s) != drafting.end();
        const int32_t hold    = s.state == DFLASH_READING ? FLUSH_READING : FLUSH_RESTING;
        if (s.state == DFLASH_READING) {   // rows that the window will have left behind when the prompt is read
            const int32_t skip = std::min(s.taps.rows, (int32_t) s.prompt.size() - drafter_->n_ctx() - s.taps.pos);
            if (skip > 0) {
                s.taps.data.erase(s.taps.data.begin(), s.taps.data.begin() + (size_t) skip * drafter_->tap_width());
                s.taps.pos += skip;
                s.taps.rows -= skip;
            }
        }
        if (denoise || s.taps.rows >= hold) {
            jobs.push_back({ s.id, s.taps.data.data(), s.taps.rows, s.taps.pos, denoise, s.anchor });
            jobs_of.push_back(&s);
        }
    }
    if (jobs.empty()) {
        return 0;
    }

    std::vector<draft> drafts;
    double             draft_ms = 0;
    stopwatch          watch;
    try {
        drafter_->run(jobs, length, drafts);
    } catch (const std::exception & e) {
        // Drafting is an optimization: without it the answer is the same. Start the drafter's context afresh.
        last_failure_ = e.what();
        set_reason(REASON_FAILED);
        for (slot * s : jobs_of) {
            drafter_->rewind(s->id, s->n_past());
            s->taps.clear(s->n_past());
        }
        return 0;
    }
    watch.lap(draft_ms);
    int32_t n_denoised = 0, n_injected = 0;
    for (size_t i = 0; i < jobs.size(); ++i) {
        slot & s = *jobs_of[i];
        n_injected += jobs[i].n_inject;
        n_denoised += jobs[i].denoise;
        s.taps.clear(drafter_->next_pos(s.id));
        s.drafted = std::move(drafts[i]);
        if (jobs[i].denoise) {
            s.n_denoised = length;
            s.draft_ms   = draft_ms;
        }
    }
    if (n_denoised == 0) {
        return 0;
    }
    ++chosen_lengths_[length];
    drafted_ms_ = draft_ms;
    if (pure_ && n_injected <= 2 * n_denoised * length) {
        draft_cost_.observe(n_denoised * length, 0, draft_ms);
    }
    return draft_ms;
}

// The best tree for each slot: as large as a fixed budget says, or of the count that pays best over all slots.
void engine::grow_trees(const std::vector<slot *> & writing, double draft_ms) {
    std::vector<std::vector<float>> values;
    std::vector<slot *>             automatic;
    int32_t                         n_fixed = 0;
    for (slot * s : writing) {
        const int32_t most = max_nodes(*s);
        s->reason          = most == 1                 ? REASON_OFF
                             : s->budget != 0          ? REASON_FIXED
                             : reason_ == REASON_FIXED ? REASON_PAYS
                                                       : reason_;
        if (most > 1) {
            if (lookup_ && !s->block) {
                s->quoted = s->text.find(s->tokens, s->anchor, std::min({ max_depth(*s), s->depth, LOOKUP_LENGTH }));
                s->quoted.odds = s->seen.quotes.at(s->quoted.matched);
            }
            growth how;
            how.budget = most;
            how.width  = s->width;
            how.depth  = std::min(max_depth(*s), s->depth);
            how.odds   = &s->seen.odds;
            how.quoted = s->quoted.matched > 0 ? &s->quoted : nullptr;
            s->next    = grow(s->drafted, s->anchor, how);
        }
        if (s->budget != 0) {
            n_fixed += s->next.size();
            continue;
        }
        std::vector<float>   v, drafted;
        std::vector<int32_t> depths;
        for (int32_t i = 1; i < s->next.size(); ++i) {
            const node & n = s->next.nodes[i];
            v.push_back(n.value);
            if (n.candidate >= 0) {
                drafted.push_back(n.value);
                depths.push_back(n.depth);
            }
        }
        if (s->drafted.length > 1) {
            s->seen.values.observe(s->drafted.length, block_lengths(), depths, drafted);
        }
        values.push_back(std::move(v));
        automatic.push_back(s);
    }
    // Trees with a fixed budget must leave every other slot its anchor.
    const int32_t room = max_tree_rows() - (int32_t) automatic.size();
    for (auto it = writing.rbegin(); n_fixed > room && it != writing.rend(); ++it) {
        if ((*it)->budget != 0) {
            const int32_t cut = std::min(n_fixed - room, (*it)->next.size() - 1);
            (*it)->next.nodes.resize((*it)->next.size() - cut);
            n_fixed -= cut;
        }
    }
    if (!automatic.empty()) {
        // Slots with a fixed budget carry their share of the drafter's pass.
        const double      share  = (double) automatic.size() / (double) writing.size();
        const node_choice choice = choose_nodes(values, verify_cost_, context_, draft_ms * share + other_ms_,
            max_tree_rows() - n_fixed, { last_rows_ - n_fixed, rebuild_ms_ });
        promised_                = choice.gain;
        for (size_t i = 0; i < automatic.size(); ++i) {
            slot & s = *automatic[i];
            s.next.nodes.resize(choice.per_slot[i]);
            if (draft_ms == 0 && s.next.size() > 1) {
                s.reason = REASON_QUOTES;
            }
        }
    }
    for (slot * s : writing) {
        if (s->budget != 0) {
            for (int32_t i = 0; i < s->next.size(); ++i) {
                promised_ += s->next.nodes[i].value;
            }
        }
        // Block verification decides over a chain that was drawn, not over the likeliest one; its length was chosen
        // without looking.
        if (s->block && s->next.size() > 1) {
            s->drawn = draw_chain(s->drafted, s->anchor, s->next.size() - 1, s->chain->shape(), s->chain->luck());
            s->next  = s->drawn.to_tree();
        }
    }
}

// Block lengths to choose from, up to the first that holds what the drafter or the user allows.
std::vector<int32_t> engine::block_lengths() const {
    std::vector<int32_t> lengths;
    const int32_t        most = std::min(drafter_->block_size(), draft_n_max_ + 1);
    for (const int32_t n : { 4, 8, 12, 16, 24, 32, 48, 64 }) {
        lengths.push_back(std::min(n, drafter_->block_size()));
        if (lengths.back() >= most) {
            break;
        }
    }
    return lengths;
}

// How much of the block to denoise for these slots, 1 = nothing.
int32_t engine::choose_block(const std::vector<slot *> & drafting) {
    if (drafting.empty()) {
        set_reason(REASON_OFF);
        return 1;
    }
    int32_t                            fixed = 1, most = 1;
    std::vector<const value_profile *> profiles;
    for (const slot * s : drafting) {
        // A tree of N nodes may be N - 1 deep, and its likeliest path often is.
        const int32_t depth = std::min({ max_depth(*s), s->depth, drafter_->block_size() - 1 });
        most                = std::max(most, 1 + depth);
        if (s->budget != 0) {
            fixed = std::max(fixed, std::min(1 + depth, s->width > 1 ? DFLASH_MAX_NODES : s->budget));
        } else {
            profiles.push_back(&s->seen.values);
        }
    }
    std::vector<int32_t> lengths = block_lengths();
    while (lengths.size() > 1 && lengths[lengths.size() - 2] >= most) {
        lengths.pop_back();
    }
    if (fixed > 1) {
        set_reason(REASON_FIXED);
        if (profiles.empty()) {
            return fixed;
        }
    }
    last_choice_ = choose_length(profiles, lengths, verify_cost_, context_, draft_cost_, other_ms_, max_tree_rows());
    if (fixed > 1) {
        return std::max(fixed, last_choice_.length);
    }
    if (!switch_.draft_now()) {
        since_plain_ = 0;
        set_reason(REASON_PLAIN);
        return 1;
    }
    if (last_choice_.rate > 0 && last_choice_.rate < 1.3 * plain_rate((int32_t) drafting.size()) &&
        ++since_plain_ >= REFRESH) {
        since_plain_ = 0;
        set_reason(REASON_REFRESH);
        return 1;
    }
    set_reason(REASON_PAYS);
    return last_choice_.length;
}

}   // namespace dflash
