// One step of the engine, phase by phase: docs/architecture.md, "One step, seen from above".

#include "engine/engine.h"

#include "accept/sampling.h"
#include "base/abort_guard.h"
#include "base/stopwatch.h"
#include "llama/llama_tree.h"

#include "llama-ext.h"

#include <algorithm>
#include <cstring>

namespace dflash {

// Tap rows that a slot may hold back before a drafter pass injects them: long prompts in large passes, slots that do
// not draft now and then.
static constexpr int32_t FLUSH_READING = 256, FLUSH_RESTING = engine::MAX_STORED_TAPS;

// ---- slots ----

const slot & engine::at(int32_t i) const {
    if (i < 0 || i >= (int32_t) slots_.size()) {
        throw status_error(
            DFLASH_ERROR_ARG, "slot is " + std::to_string(i) + ", must be 0.." + std::to_string(slots_.size() - 1));
    }
    return slots_[i];
}

// ---- one step ----

int32_t engine::step(dflash_update * updates, int32_t cap) {
    if (!updates || cap < (int32_t) slots_.size()) {
        throw status_error(DFLASH_ERROR_ARG,
            "cap is " + std::to_string(cap) + ", must be at least n_slots (" + std::to_string(slots_.size()) + ")");
    }
    int32_t n_updates = 0;
    raise_rpc_failures([&] { n_updates = run_step(updates); });
    return n_updates;
}

// What went wrong because an RPC server failed is that server's fault.
void engine::raise_rpc_failures(const std::function<void()> & f) const {
    try {
        f();
    } catch (...) {
        rpc_.raise_failures();
        throw;
    }
    rpc_.raise_failures();
}

int32_t engine::run_step(dflash_update * updates) {
    const stopwatch       whole;
    const double          passes_before = times_.verify + times_.draft;
    const transfer_counts moved_before  = transfers_of_this_thread();
    stopwatch             watch;

    plan();
    watch.lap(times_.plan);
    if (batch_.n_rows() == 0) {
        return report_updates(updates, 0);
    }
    const bool   verified  = verify();
    const double verify_ms = watch.lap(times_.verify);
    if (verified) {
        walk();
        watch.lap(times_.walk);
        controller_.observe_verify(slots_, batch_.n_rows(), trees_only_, verify_ms);
        commit();
        end_pass();
        watch.lap(times_.commit);
        quote();
        const int32_t length = controller_.choose_length(slots_, room_for_trees());
        watch.lap(times_.grow);
        draft(length);
        watch.lap(times_.draft);
        grow();
        watch.lap(times_.grow);
    }
    const int32_t n_updates = report_updates(updates, verify_ms);

    ++totals_.n_steps;
    totals_.add(moved_before, transfers_of_this_thread());
    const double step_ms = whole.ms();
    times_.step += step_ms;
    if (trees_only_) {
        controller_.observe_other(std::max(0.0, step_ms - (times_.verify + times_.draft - passes_before)));
    }
    return n_updates;
}

int32_t engine::report_updates(dflash_update * updates, double verify_ms) {
    int32_t n = 0;
    for (slot & s : slots_) {
        if (s.n_rows == 0 && !s.ended) {
            continue;
        }
        s.update.slot      = s.id;
        s.update.verify_ms = verify_ms;
        s.update.state     = s.state;
        s.update.n_tokens  = (int32_t) s.emitted.size();
        s.update.tokens    = s.emitted.data();
        s.update.error     = s.failed() ? s.error.c_str() : nullptr;
        s.update.n_past    = s.n_past();
        if (s.n_probs > 0) {
            s.update.probs = s.probs.view(s.n_prompt_probs);
        }
        if (s.return_drafts) {
            s.update.tree = s.verified.view();
        }
        updates[n++] = s.update;
    }
    return n;
}

// ---- 1. plan: the trees of slots that write, then chunks of prompts, oldest request first ----

void engine::plan() {
    batch_.clear();
    for (slot & s : slots_) {
        s.begin_pass();
        if (s.follows() && s.reading()) {
            follow(s);
        }
    }
    const int32_t room = find_room();
    cut_trees(room);
    const int32_t padded_size = controller_.padded_size(slots_, room);
    const int32_t last_size   = controller_.last_padded_size(slots_, room);
    const slot *  last        = nullptr;   // of those that write
    for (const slot & s : slots_) {
        last = s.writing() ? &s : last;
    }
    std::vector<slot *> reading;
    for (slot & s : slots_) {
        if (s.writing()) {
            s.samples = true;
            add_tree(s, s.next, true, s.next.size() > 1, &s == last ? std::max(padded_size, last_size) : padded_size);
        } else if (s.reading() && !s.follows()) {
            reading.push_back(&s);
        }
    }
    const int32_t n_tree_rows = batch_.n_rows();
    std::sort(
        reading.begin(), reading.end(), [](const slot * a, const slot * b) { return a->t_submit_us < b->t_submit_us; });
    for (size_t i = 0; i < reading.size(); ++i) {   // each of the later ones may need an output, too
        add_prompt(
            *reading[i], n_tree_rows, limits_.n_outputs - batch_.n_outputs() - (int32_t) (reading.size() - 1 - i));
    }
    trees_only_ = batch_.n_rows() == n_tree_rows;
    batch_.pad(std::min(limits_.n_rows, free_cells()));
    choose_best_logits();
}

// What suffices for all slots that sample in this pass; a pass that does not sample changes nothing.
void engine::choose_best_logits() {
    if (!logit_store_) {
        return;
    }
    bool        samples = false;
    best_logits wanted  = best_logits::largest;
    for (const slot & s : slots_) {
        if (!s.samples) {
            continue;
        }
        const best_logits needs = s.n_probs > 0 || s.block ? best_logits::none : s.sampler->needs();
        samples                 = true;
        wanted =
            needs == best_logits::none || wanted == best_logits::none ? best_logits::none : std::max(wanted, needs);
    }
    if (samples) {
        logit_store_->wanted = wanted;
    }
}

// Without `all_outputs` only the tree's last row has logits. rolls_back: the walk may leave a part of the tree; a
// recurrent state rolls a chain back as it does a tree.
void engine::add_tree(slot & s, const tree & t, bool all_outputs, bool rolls_back, int32_t padded_size) {
    s.open      = !t.is_chain() || padded_size > t.size() || (tapes_ && rolls_back);
    s.first_row = batch_.add_tree(s.id, t, s.n_past(), all_outputs, s.open, padded_size);
    s.n_rows    = t.size();
}

// Cells are short: the last trees give nodes up, no anchor.
void engine::cut_trees(int32_t room) {
    int32_t n_nodes = 0;
    for (const slot & s : slots_) {
        n_nodes += s.writing() ? s.next.size() : 0;
    }
    for (auto s = slots_.rbegin(); n_nodes > room && s != slots_.rend(); ++s) {
        if (s->writing() && s->next.size() > 1) {
            n_nodes -= s->next.size() - 1;
            // a chain that was drawn counts whole or not at all
            const int32_t n_left = s->block ? 1 : std::max(1, room - n_nodes);
            s->next.nodes.resize(n_left);
            n_nodes += n_left - 1;
        }
    }
}

// As much of the prompt as fits the pass, up to where a checkpoint is to be made. n_before: rows that are no prompt's;
// n_outputs: most rows with logits.
void engine::add_prompt(slot & s, int32_t n_before, int32_t n_outputs) {
    const int32_t n_prompt = (int32_t) s.prompt.size();
    const int32_t end      = s.n_past() < s.save_at ? s.save_at : n_prompt;
    const int32_t n_room   = std::min(limits_.n_rows, n_before + limits_.n_prompt_rows) - batch_.n_rows();
    int32_t       n        = std::min(end - s.n_past(), n_room);
    if (s.probs_from > 0) {
        n = std::min(n, std::max(0, s.probs_from - 1 - s.n_past()) + n_outputs);
    }
    s.first_row = batch_.n_rows();
    s.reads     = n > 0;
    s.samples   = n > 0 && s.n_past() + n == n_prompt && s.n_predict != 0;
    for (int32_t i = 0; i < n; ++i) {
        const int32_t at = s.n_past() + i;
        batch_.add_row(s.id, s.prompt[at], at, s.tells_after(at) || (s.samples && i == n - 1));
        ++s.n_rows;
    }
    if (n > 0 && !s.t_start_us) {
        s.t_start_us       = llama_time_us();
        s.stats.t_queue_ms = (s.t_start_us - s.t_submit_us) / 1000.0;
    }
}

// ---- 2. verify: one target forward over all rows ----

// On failure every slot of the pass has lost its state.
bool engine::verify() {
    interrupted_           = false;
    const int32_t n_reused = llama_perf_context(ctx_.get()).n_reused;
    const int     rc       = process();
    if (batch_.n_padding() > 0) {
        llama_memory_seq_rm(llama_get_memory(ctx_.get()), batch_.padding_seq(), -1, -1);
    }
    if (rc == 0) {
        await_logits();
        ++totals_.n_passes;
        const bool reused = llama_perf_context(ctx_.get()).n_reused > n_reused;
        totals_.n_reused += reused;
        totals_.n_decoding += trees_only_ && decoded_;
        totals_.n_decoding_reused += trees_only_ && decoded_ && reused;
        decoded_ = trees_only_;
        totals_.n_rows += batch_.n_rows() - batch_.n_padding();
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
    end_pass();
    return false;
}

// The walk would look at these rows first. A pass on an RPC server is over when something of it has been read: its time
// is no other phase's.
void engine::await_logits() {
    if (!logit_store_ || logit_store_->wanted != best_logits::none) {
        return;
    }
    for (const slot & s : slots_) {
        if (s.samples) {
            logit_store_->row(s.first_row + (s.reads ? s.n_rows - 1 : 0));
        }
    }
    rpc_.raise_failures();
}

// Cells of the store for the taps of this pass; there are some when no slot holds any (create_tap_store).
void engine::give_tap_cells() {
    if (!tap_store_) {
        return;
    }
    end_pass();
    std::vector<tap_cell> cells(batch_.n_rows() - batch_.n_padding());
    if (tap_store_->n_free() < (int32_t) cells.size()) {
        inject_all();
    }
    std::generate(cells.begin(), cells.end(), [this] { return tap_store_->take(); });
    tap_store_->set_pass(std::move(cells));
}

// Frees the cells of this pass that no slot keeps.
void engine::end_pass() {
    if (tap_store_) {
        tap_store_->set_pass({});
    }
}

// The pass over the rows in batch_. Returns llama_process()'s code.
int engine::process() {
    give_tap_cells();
    const abort_guard guard(abort_guard::phase::pass);
    const int         rc = llama_process(ctx_.get(), LLAMA_PROCESS_TYPE_DECODE, batch_.get());
    llama_synchronize(ctx_.get());
    rpc_.raise_failures();   // before anybody reads what the pass left
    return rc;
}

void engine::process_or_throw(const char * what) {
    if (const int rc = process()) {
        throw status_error(
            DFLASH_ERROR_COMPUTE, std::string(what) + ": a target pass failed (code " + std::to_string(rc) + ")");
    }
}

// ---- 3. walk: per slot, with its own sampler chain ----

void engine::walk() {
    for (slot & s : slots_) {
        s.walked = {};
        try {
            tell_prompt(s);
            s.walked = s.samples ? walk_slot(s) : walk_result{};
        } catch (const status_error & e) {
            fail(s, e.what(), e.status == DFLASH_ERROR_ARG ? DFLASH_REFUSED : DFLASH_FAILED);
            continue;
        } catch (const std::exception & e) {
            fail(s, e.what());
            continue;
        }
        if (s.samples) {
            count(s);
        }
    }
}

// The probabilities of the prompt's tokens that follow the rows of this chunk.
void engine::tell_prompt(slot & s) {
    for (int32_t i = 0; s.reads && s.probs_from > 0 && i < s.n_rows; ++i) {
        if (const int32_t at = s.n_past() + i; s.tells_after(at)) {
            s.probs.add(
                logits_of(ctx_.get(), s.first_row + i), llama_vocab_n_tokens(vocab()), s.prompt[at + 1], s.n_probs);
            ++s.n_prompt_probs;
        }
    }
}

// The probability of a token that was sampled at this row, if the request wants to know.
void engine::tell(slot & s, int32_t row, int32_t token) {
    if (s.post_probs) {
        s.probs.add(s.sampler->drawn_from(), token, s.n_probs);
    } else if (s.n_probs > 0) {
        s.probs.add(logits_of(ctx_.get(), row), llama_vocab_n_tokens(vocab()), token, s.n_probs);
    }
}

// Sample at a node, descend while a child carries the sample. The last row of a prompt is a tree of one node.
walk_result engine::walk_slot(slot & s) {
    static const tree root{ { node::root(-1) } };
    const tree &      t         = s.reads ? root : s.next;
    const int32_t     first_row = s.reads ? s.first_row + s.n_rows - 1 : s.first_row;
    const auto        ends      = [&](int32_t token) { return llama_vocab_is_eog(vocab(), token); };
    if (s.block && t.size() > 1) {
        return walk_block(s, first_row, ends);
    }
    const auto sample = [&](int32_t node) {
        const llama_token token = s.sampler->sample(ctx_.get(), first_row + node);
        tell(s, first_row + node, token);
        s.sampler->accept(token);
        return token;
    };
    return dflash::walk(t, sample, ends);
}

walk_result engine::walk_block(slot & s, int32_t first_row, const std::function<bool(int32_t)> & ends) {
    std::vector<std::vector<token_prob>> drawn_from;   // [rows]
    const walk_result                    walked =
        block_walk(s.drawn, *s.sampler, ctx_.get(), first_row, ends, s.post_probs ? &drawn_from : nullptr);
    for (size_t i = 0; i < walked.tokens.size(); ++i) {
        if (s.post_probs) {
            s.probs.add(std::move(drawn_from[i]), walked.tokens[i], s.n_probs);
        } else {
            tell(s, first_row + (int32_t) i, walked.tokens[i]);
        }
    }
    return walked;
}

// Statistics of a walk.
void engine::count(slot & s) {
    const int32_t n_tokens = (int32_t) s.walked.tokens.size();
    s.stats.n_generated += n_tokens;
    totals_.n_tokens += n_tokens;
    s.update.first = s.reads;
    if (s.reads) {
        s.t_first_us        = llama_time_us();
        s.stats.t_prompt_ms = (s.t_first_us - s.t_start_us) / 1000.0;
        return;
    }
    const dflash_slot_stats before = s.stats;
    s.count_walk(s.next);
    s.update.plain_ms = controller_.plain_ms(slots_);
    totals_.n_lookup_drafted += s.stats.n_lookup_drafted - before.n_lookup_drafted;
    totals_.n_lookup_accepted += s.stats.n_lookup_accepted - before.n_lookup_accepted;
    controller_.observe_walk(s);
}

// ---- 4. commit: make the accepted path permanent, forget the rest; the bonus becomes the next anchor ----

void engine::commit() {
    for (slot & s : slots_) {
        if (s.n_rows == 0 || s.failed()) {
            continue;
        }
        if (s.reads) {
            commit_prompt(s);
        } else if (!commit_tree(s)) {
            fail(s, "the target's memory cannot be rolled back");
            continue;
        }
        if (!s.samples) {
            if (s.n_past() == (int32_t) s.prompt.size()) {   // n_predict 0: the prompt was all there was to do
                finish(s, DFLASH_LENGTH);
            }
            continue;
        }
        s.emitted = s.walked.tokens;
        for (const int32_t token : s.emitted) {
            s.predicted.advance(token);
        }
        s.stats.n_prediction_accepted = s.predicted.n_met();
        s.state                       = DFLASH_WRITING;
        s.begin_tree(s.walked.tokens.back());
        if (s.walked.stopped) {
            s.emitted.pop_back();
            finish(s, DFLASH_STOP);
        } else if (s.n_left() <= 0) {
            finish(s, DFLASH_LENGTH);
        } else if (s.n_past() + 1 >= limits_.n_ctx_slot) {   // with the anchor, as llama-server counts
            finish(s, DFLASH_CONTEXT);
        }
    }
}

void engine::commit_prompt(slot & s) {
    keep_taps(s, s.first_row, s.n_rows);
    const auto from = s.prompt.begin() + s.n_past();
    s.tokens.insert(s.tokens.end(), from, from + s.n_rows);
    if (s.n_past() == s.save_at) {
        add_checkpoint(s);
    }
}

bool engine::commit_tree(slot & s) {
    keep_taps(s, s.walked.path);
    return keep_path(s, s.next, s.walked.path);
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

// The taps of a tree's nodes on this path.
void engine::keep_taps(slot & s, const std::vector<int32_t> & path) {
    const int32_t n = (int32_t) path.size();
    for (int32_t from = 0; from < n;) {   // neighbouring rows at once
        int32_t to = from + 1;
        while (to < n && path[to] == path[to - 1] + 1) {
            ++to;
        }
        keep_taps(s, s.first_row + path[from], to - from);
        from = to;
    }
}

// The taps of rows [row, row + n) of the pass, behind what the slot already holds.
void engine::keep_taps(slot & s, int32_t row, int32_t n) {
    if (!drafter_) {
        return;
    }
    if (tap_store_) {
        s.taps.append(tap_store_->pass().data() + row, n);
        return;
    }
    const auto & layers = drafter_->model().target_layers;
    const size_t n_embd = drafter_->model().n_embd, width = drafter_->tap_width();
    float *      taps = s.taps.append(n, width);
    for (size_t k = 0; k < layers.size(); ++k) {
        const float * rows = llama_get_embeddings_layer_inp(ctx_.get(), layers[k]);
        for (int32_t i = 0; i < n; ++i) {
            std::memcpy(taps + i * width + k * n_embd, rows + (size_t) (row + i) * n_embd, n_embd * sizeof(float));
        }
    }
}

void engine::finish(slot & s, int32_t state) {
    s.state     = state;
    s.t_used_us = llama_time_us();
    s.n_asked   = std::min(s.n_asked, s.n_past());   // it may not have been read whole
    s.leader    = {};
    s.sampler.reset();
    controller_.end_answer(s);
    s.clear_tree();
    if (s.t_first_us) {
        s.stats.t_generate_ms = (llama_time_us() - s.t_first_us) / 1000.0;
    }
}

dflash_slot_stats engine::stats_of(int32_t i) const {
    const slot &      s     = at(i);
    dflash_slot_stats stats = s.stats;
    if (s.running() && s.t_first_us) {
        stats.t_generate_ms = (llama_time_us() - s.t_first_us) / 1000.0;
    }
    return stats;
}

void engine::fail(slot & s, const std::string & why, int32_t state) {
    s.error = why;
    s.emitted.clear();
    s.probs.clear();
    s.n_prompt_probs = 0;
    finish(s, state);
    forget(s);
}

// What comes next by the text itself or by the client's prediction: known before the drafter runs, which it may spare.
void engine::quote() {
    for (slot & s : slots_) {
        const int32_t length = s.writing() && !s.block ? std::min(controller_.max_depth(s), s.quote_depth) : 0;
        if (length == 0) {
            continue;
        }
        s.quoted      = s.predicted.quote(length);
        s.quoted.odds = s.learned.predictions.at(s.quoted.matched);
        if (s.lookup) {
            quotation found = s.text.find(s.tokens, s.anchor, length);
            found.odds      = s.learned.quotes.at(found.matched);
            if (s.quoted.tokens.empty() || (!found.tokens.empty() && found.odds > s.quoted.odds)) {
                s.quoted = std::move(found);
            }
        }
    }
}

// ---- 5. draft: one drafter forward for all slots that continue ----

// Injects the taps of accepted rows, and denoises a block of `length` tokens for every slot whose tree may grow. Other
// slots inject their taps only when they hold many.
void engine::draft(int32_t length) {
    if (!drafter_) {
        return;
    }
    std::vector<draft_job> jobs;
    for (slot & s : slots_) {
        const bool denoises = length > 1 && s.writing() && controller_.max_nodes(s) > 1;
        if (denoises || s.taps.rows >= (s.reading() && !tap_store_ ? FLUSH_READING : FLUSH_RESTING)) {
            jobs.push_back(job_of(s, denoises));
        }
    }
    if (!jobs.empty()) {
        run_drafter(jobs, length);
    }
}

draft_job engine::job_of(const slot & s, bool denoises) {
    const pending_taps & taps = s.taps;
    return { s.id, taps.data.data(), taps.rows, taps.pos, denoises, s.anchor, taps.cells.data() };
}

// Every slot's pending taps.
void engine::inject_all() {
    std::vector<draft_job> jobs;
    for (const slot & s : slots_) {
        if (s.taps.rows > 0) {
            jobs.push_back(job_of(s, false));
        }
    }
    if (!jobs.empty()) {
        run_drafter(jobs, 0);
    }
}

void engine::run_drafter(const std::vector<draft_job> & jobs, int32_t length) {
    std::vector<dflash::draft> drafts;
    const stopwatch            watch;
    try {
        drafter_->run(jobs, length, drafts);
    } catch (const std::exception & e) {
        // Drafting is an optimization: without it the answer is the same. Start the drafter's context afresh.
        controller_.observe_failure(e.what());
        for (const draft_job & job : jobs) {
            slot & s = slots_[job.slot];
            drafter_->restart(s.id, s.n_past());   // it may hold rows that were never computed
            s.taps.clear(s.n_past());
        }
        return;
    }
    const double draft_ms   = watch.ms();
    int32_t      n_denoised = 0, n_injected = 0;
    for (size_t i = 0; i < jobs.size(); ++i) {
        slot & s = slots_[jobs[i].slot];
        n_injected += jobs[i].n_inject;
        n_denoised += jobs[i].denoise;
        s.taps.clear(drafter_->next_pos(s.id));
        s.draft = std::move(drafts[i]);
        if (jobs[i].denoise) {
            s.n_denoised = length;
            s.draft_ms   = draft_ms;
        }
    }
    if (n_denoised > 0) {
        controller_.observe_draft(n_denoised, length, n_injected, draft_ms);
    }
}

// ---- 6. grow: per slot, the best tree for the budget that the controller chose ----

void engine::grow() {
    for (slot & s : slots_) {
        if (s.writing() && controller_.max_nodes(s) > 1) {
            grow_tree(s);
        }
    }
    controller_.choose_nodes(slots_);
    for (slot & s : slots_) {
        // Block verification decides over a chain that was drawn, not over the likeliest one; its length was chosen
        // without looking.
        if (s.writing() && s.block && s.next.size() > 1) {
            s.drawn = draw_chain(s.draft, s.anchor, s.next.size() - 1, s.sampler->shape(), s.sampler->random());
            s.next  = s.drawn.to_tree();
        }
    }
}

// As large as the slot's tree may get: the controller takes its best nodes.
void engine::grow_tree(slot & s) {
    growth rules;
    rules.budget = controller_.max_nodes(s);
    rules.width  = s.width;
    rules.depth  = std::min(controller_.max_depth(s), std::max(s.depth, s.quote_depth));
    rules.odds   = &s.learned.odds;
    rules.quoted = s.quoted.tokens.empty() ? nullptr : &s.quoted;
    s.next       = dflash::grow(s.draft, s.anchor, rules);
}

}   // namespace dflash
