// One step of the engine, phase by phase: docs/architecture.md, "One step, seen from above".

#include "accept/sampling.h"
#include "base/stopwatch.h"
#include "engine/engine.h"
#include "engine/media_pass.h"
#include "engine/slot_walk.h"

#include <algorithm>
#include <stdexcept>

namespace dflash {

int32_t engine::step(dflash_update * updates, int32_t cap) {
    refuse_if(
        !updates || cap < (int32_t) slots_.size(), "cap is ", cap, ", must be at least n_slots (", slots_.size(), ")");
    int32_t n_updates = 0;
    models_.rpc().blame([&] { n_updates = encoder_ ? step_in_turn(updates) : run_step(updates); });
    return n_updates;
}

// The media encoder computes between steps. If a slot waits for it and there is nothing else to compute, this waits,
// too.
int32_t engine::step_in_turn(dflash_update * updates) {
    constexpr int32_t WAIT_MS   = 20;   // then commands of the caller may come
    int32_t           n_updates = 0;
    {
        encoder_turns::step turn(encoder_->turns());
        n_updates = run_step(updates);
        if (target_.rows().n_rows() == 0) {
            turn.computes_nothing();
        }
    }
    for (const slot & s : slots_) {
        if (s.pass.awaits && target_.rows().n_rows() == 0) {
            encoder_->wait(*s.pass.awaits, WAIT_MS);
            break;
        }
    }
    return n_updates;
}

// Runs a phase and adds its milliseconds to `total`.
template <class Phase> static auto timed(double & total, Phase && phase) {
    const lap_timer timer(total);
    return phase();
}

int32_t engine::run_step(dflash_update * updates) {
    const stopwatch       whole;
    const double          passes_before = times_.verify + times_.draft;
    const transfer_counts moved_before  = transfers_of_this_thread();

    // Not what steps take as a rule: it may copy the rows of whole conversations to the host and back.
    double        begin_ms = 0;
    const int32_t room     = timed(begin_ms, [&] { return begin_step(); });
    times_.plan += begin_ms;
    timed(times_.verify, [&] { read_media(); });
    timed(times_.plan, [&] { plan(room); });
    if (target_.rows().n_rows() == 0) {
        return write_updates(updates);
    }
    if (timed(times_.verify, [&] { return verify(); })) {
        timed(times_.walk, [&] { walk(); });
        timed(times_.commit, [&] { commit(); });
        timed(times_.grow, [&] { choose(); });
        timed(times_.draft, [&] { draft(); });
        timed(times_.grow, [&] { grow(); });
    }
    const int32_t n_updates = write_updates(updates);

    ++totals_.n_steps;
    totals_.add(moved_before, transfers_of_this_thread());
    const double step_ms = whole.ms();
    times_.step += step_ms;
    if (pass_.trees_only) {
        const double passes_ms = times_.verify + times_.draft - passes_before;
        controller_.observe_other(std::max(0.0, step_ms - begin_ms - passes_ms));
    }
    return n_updates;
}

int32_t engine::write_updates(dflash_update * updates) {
    int32_t n = 0;
    for (slot & s : slots_) {
        if (s.pass.n_rows > 0 || s.pass.reads_media || s.result.ended) {
            updates[n++] = s.update(pass_.verify_ms);
        }
    }
    return n;
}

// Returns how many cells there are for trees.
int32_t engine::begin_step() {
    pass_ = next_;
    for (slot & s : slots_) {
        s.begin_pass();
    }
    follow_leaders();
    const int32_t room = room_.claim([this](slot & s, const std::string & why) { end_early(s, why); });
    follow_leaders();   // one that was ended just now leads nobody
    return room;
}

void engine::follow_leaders() {
    for (slot & s : slots_) {
        follow(s);
    }
}

// If this slot waits for another one to read their shared prefix: takes it over once it is there, or stops waiting if
// it never will be.
void engine::follow(slot & s) {
    if (s.held->follows() && s.reading()) {
        const auto n_cached = cache_.follow(s.id, reusable_part(s.request.prompt, s.request.probs_from));
        s.stats.n_cached    = n_cached.value_or(s.stats.n_cached);
    }
}

// ---- 1. media: a pass over rows of one medium, if one was encoded; no other rows can be in it ----

void engine::read_media() {
    if (slot * s = next_medium()) {
        read_medium(*s);
    }
}

// Has the media of all prompts that are being read encoded, and returns the oldest slot whose next medium is ready;
// null: none is.
slot * engine::next_medium() {
    slot * next = nullptr;
    for (slot & s : slots_) {
        if (!s.reading() || s.held->follows()) {
            continue;
        }
        s.request.media.want(encoder_.get(), s.n_past());
        const medium * m = s.request.media.at(s.n_past());
        if (!m) {
            continue;
        }
        s.start_reading(llama_time_us());
        s.pass.reads_media = true;
        try {
            const bool ready = encoder_->rows(*m);
            s.pass.awaits    = ready ? nullptr : m;
            next             = ready && (!next || older(&s, next)) ? &s : next;
        } catch (const std::exception & e) {
            fail(s, e.what());
        }
    }
    return next;
}

void engine::read_medium(slot & s) {
    const media_span & span = *s.request.media.layout.at(s.n_past());
    const medium &     m    = *s.request.media.at(s.n_past());
    const int32_t      from = s.n_past() - span.begin, n = media_pass_rows(limits_, m, from);
    const int32_t      pos = s.held->media.position(span.begin);
    const int          rc  = process_media(target_, drafts_, s.id, m, encoder_->rows(m), pos, from, n);
    if (rc != 0) {
        fail(s, "a pass over a medium failed (code " + std::to_string(rc) + ")");
        target_.end_pass();
        return;
    }
    ++totals_.n_passes;
    totals_.n_rows += n;
    decoded_ = false;
    drafts_.keep_taps(s.id, 0, n);
    cache_.add_prompt(s.id, n);
    target_.end_pass();
}

// ---- 2. plan: the trees of slots that write, then chunks of prompts, oldest request first ----

// room: cells for trees.
void engine::plan(int32_t room) {
    batch & rows = target_.rows();
    rows.clear();
    controller::cut_trees(slots_, room);
    const std::vector<int32_t> sizes = controller_.tree_sizes(slots_, room);
    pass_.is_split                   = controller_.splits(sizes);
    add_trees(sizes);
    const int32_t n_tree_rows = rows.n_rows();
    add_prompts();
    pass_.trees_only = rows.n_rows() == n_tree_rows;
    rows.pad(std::min(limits_.n_rows, cache_.free_cells()));
    pass_.n_rows = rows.n_rows();
    choose_needed_logits();
}

// sizes: [slots], with padding.
void engine::add_trees(const std::vector<int32_t> & sizes) {
    for (slot & s : slots_) {
        if (s.writing()) {
            const tree &     t = s.drafts.tree;
            batch::tree_form form;
            form.padded_size = sizes[s.id];
            form.open        = target_.opens(t, t.size() > 1, form.padded_size);
            s.pass.first_row = target_.rows().add_tree(s.id, t, s.held->position(), form);
            s.pass.n_rows    = t.size();
            s.pass.samples   = true;
            s.pass.open      = form.open;
        }
    }
}

void engine::add_prompts() {
    std::vector<slot *> reading;
    for (slot & s : slots_) {
        if (s.reading() && !s.held->follows()) {
            reading.push_back(&s);
        }
    }
    std::sort(reading.begin(), reading.end(), older);
    const int32_t n_tree_rows = target_.rows().n_rows();
    int32_t       n_later     = (int32_t) reading.size();   // prompts, each of which may need an output, too
    for (slot * s : reading) {
        --n_later;
        add_prompt(*s, n_tree_rows, limits_.n_outputs - target_.rows().n_outputs() - n_later);
    }
}

// Asks for the cheapest form of logits that is enough for every slot that samples in this pass. Without such a slot the
// last choice stays, so the graph can be reused.
void engine::choose_needed_logits() {
    if (!target_.logits()) {
        return;
    }
    bool          samples = false;
    needed_logits wanted  = needed_logits::largest;
    for (const slot & s : slots_) {
        if (s.pass.samples) {
            const bool whole = s.request.n_probs > 0 || s.request.block_accept;
            wanted           = std::max(wanted, whole ? needed_logits::whole_row : s.request.sampler->needs());
            samples          = true;
        }
    }
    if (samples) {
        target_.logits()->wanted = wanted;
    }
}

// Adds as much of the prompt as fits the pass, up to where a checkpoint is to be made. n_outputs: most rows with
// logits.
void engine::add_prompt(slot & s, int32_t n_tree_rows, int32_t n_outputs) {
    batch &       rows     = target_.rows();
    const int32_t n_prompt = (int32_t) s.request.prompt.size();
    const int32_t stop     = s.n_past() < s.held->save_at ? s.held->save_at : n_prompt;
    const int32_t end      = std::min(stop, s.request.media.layout.next(s.n_past()));
    const int32_t n_room   = std::min(limits_.n_rows, n_tree_rows + limits_.n_prompt_rows) - rows.n_rows();
    int32_t       n        = std::min(end - s.n_past(), n_room);
    if (s.request.probs_from > 0) {
        n = std::min(n, std::max(0, s.request.probs_from - 1 - s.n_past()) + n_outputs);
    }
    s.pass.first_row = rows.n_rows();
    s.pass.reads     = n > 0;
    s.pass.samples   = n > 0 && s.n_past() + n == n_prompt && s.request.n_predict != 0;
    for (int32_t i = 0; i < n; ++i) {
        const int32_t at = s.n_past() + i;
        rows.add_row(s.id, s.request.prompt[at], s.held->media.position(at),
            s.request.wants_probs_after(at) || (s.pass.samples && i == n - 1));
        ++s.pass.n_rows;
    }
    if (n > 0) {
        s.start_reading(llama_time_us());
    }
}

// ---- 3. verify: one target forward over all rows ----

// On failure every slot of the pass has lost its state.
bool engine::verify() {
    const stopwatch watch;
    target_.clear_interrupt();
    target_.end_pass();   // the inspector's, or that of a step that threw
    drafts_.free_tap_cells();
    const int rc = target_.process();
    if (rc == 0) {
        await_logits();
        count_pass();
        pass_.verify_ms = watch.ms();
        return true;
    }
    pass_.verify_ms       = watch.ms();
    const std::string why = rc == 2    ? "the pass was interrupted"
                            : rc == 1  ? "no room in the KV cache"
                            : rc == -2 ? "no memory for a pass"
                                       : "a target pass failed (code " + std::to_string(rc) + ")";
    for (slot & s : slots_) {
        if (s.pass.n_rows > 0) {
            fail(s, why);
        }
    }
    target_.end_pass();
    return false;
}

// Statistics of a pass.
void engine::count_pass() {
    const batch & rows   = target_.rows();
    const bool    reused = target_.reused_graph();
    ++totals_.n_passes;
    totals_.n_reused += reused;
    totals_.n_decoding += pass_.trees_only && decoded_;
    totals_.n_decoding_reused += pass_.trees_only && decoded_ && reused;
    decoded_ = pass_.trees_only;
    totals_.n_rows += rows.n_rows() - rows.n_padding();
}

// Reads the rows that the walk looks at first. A pass on an RPC server is over only when something of it has been read,
// and that wait belongs to this phase.
void engine::await_logits() {
    logit_store * logits = target_.logits();
    if (!logits || logits->wanted != needed_logits::whole_row) {
        return;
    }
    for (const slot & s : slots_) {
        if (s.pass.samples) {
            logits->row(s.pass.sampled_row());
        }
    }
    models_.rpc().raise_failures();
}

// ---- 4. walk: per slot, with its own sampler chain ----

void engine::walk() {
    for (slot & s : slots_) {
        try {
            add_prompt_probs(s, target_.context());
            s.pass.walked = s.pass.samples ? walk_slot(s, target_.context()) : walk_result{};
        } catch (const status_error & e) {
            fail(s, e.what(), e.status == DFLASH_ERROR_ARG ? DFLASH_REFUSED : DFLASH_FAILED);
            continue;
        } catch (const std::invalid_argument & e) {   // its grammar allows too much
            fail(s, e.what(), DFLASH_REFUSED);
            continue;
        } catch (const std::exception & e) {
            fail(s, e.what());
            continue;
        }
        if (s.pass.samples) {
            count_walk(s);
        }
    }
    controller_.observe_verify(slots_, pass_);
}

// Statistics of a walk.
void engine::count_walk(slot & s) {
    const int32_t n_tokens = (int32_t) s.pass.walked.tokens.size();
    s.stats.n_generated += n_tokens;
    totals_.n_tokens += n_tokens;
    drafts_.count_text(s.pass.walked.tokens);
    s.result.update.first = s.pass.reads;
    if (s.pass.reads) {
        s.t_first_us        = llama_time_us();
        s.stats.t_prompt_ms = (s.t_first_us - s.t_start_us) / 1000.0;
        return;
    }
    const dflash_slot_counters before = s.stats;
    s.count_walk(drafts_.empty() ? (int32_t) DFLASH_BY_DRAFTER : drafts_[s.drafts.drafter].drafter().kind().origin);
    s.result.update.plain_ms = controller_.plain_ms(slots_, pass_.choice.n_attended);
    for (size_t i = 0; i < N_QUOTE_SOURCES; ++i) {
        totals_.n_quoted[i] += s.stats.quoted_drafted[i] - before.quoted_drafted[i];
        totals_.n_quoted_accepted[i] += s.stats.quoted_accepted[i] - before.quoted_accepted[i];
    }
    controller_.observe_walk(s);
}

// ---- 5. commit: make the accepted path permanent, forget the rest; the bonus becomes the next anchor ----

void engine::commit() {
    for (slot & s : slots_) {
        if (s.pass.n_rows == 0 || s.failed()) {
            continue;
        }
        s.pass.reads ? commit_prompt(s) : commit_tree(s);
        if (!s.failed()) {
            emit(s);
            finish_if_done(s);
        }
    }
    target_.end_pass();
}

// Hands out the tokens of the walk. The last one, the bonus, is the next anchor.
void engine::emit(slot & s) {
    if (!s.pass.samples) {
        return;
    }
    s.result.emitted = s.pass.walked.tokens;
    for (const int32_t token : s.result.emitted) {
        s.request.predicted.advance(token);
    }
    s.stats.n_prediction_accepted = s.request.predicted.n_met();
    s.state                       = DFLASH_WRITING;
    s.drafts.begin(s.result.emitted.back());
    if (s.pass.walked.stopped) {
        s.result.emitted.pop_back();
    }
}

void engine::finish_if_done(slot & s) {
    if (!s.pass.samples) {
        if (s.n_past() == (int32_t) s.request.prompt.size()) {   // n_predict is 0: only the prompt was to be read
            finish(s, DFLASH_LENGTH);
        }
    } else if (s.pass.walked.stopped) {
        finish(s, DFLASH_STOP);
    } else if (s.n_left() <= 0) {
        finish(s, DFLASH_LENGTH);
    } else if (s.n_past() + 1 >= limits_.n_ctx_slot) {   // with the anchor, as llama-server counts
        finish(s, DFLASH_CONTEXT);
    }
}

void engine::commit_prompt(slot & s) {
    drafts_.keep_taps(s.id, s.pass.first_row, s.pass.n_rows);
    cache_.add_prompt(s.id, s.pass.n_rows);
}

void engine::commit_tree(slot & s) {
    const std::vector<int32_t> & path = s.pass.walked.path;
    drafts_.keep_taps(s.id, s.pass.first_row, path);
    if (!cache_.keep_path(s.id, s.drafts.tree, path, s.pass.open)) {
        fail(s, "the target's memory cannot be rolled back");
    }
}

// ---- 6. choose: quote, and decide whether and how far to draft ----

void engine::choose() {
    quote();
    next_        = {};
    next_.choice = controller_.choose_length(slots_, room_.for_trees());
}

// Looks up quotations and predictions. This comes before the drafter runs, because they may make its pass unnecessary.
void engine::quote() {
    continuations found;
    for (slot & s : slots_) {
        const request & r      = s.request;
        const int32_t   length = s.writing() && !r.block_accept ? std::min(controller_.max_depth(s), r.quote_depth) : 0;
        if (length == 0) {
            continue;
        }
        found.clear();
        r.predicted.find(length, found);
        if (r.lookup) {
            cache_.find_quotations(s.id, s.drafts.anchor, length, found);
            corpus_.find(s.held->tokens, s.drafts.anchor, length, found);
            answers_.find(r.lookup_owner, s.held->tokens, s.drafts.anchor, length, found);
        }
        s.drafts.quoted = dflash::quote(s.drafts.anchor, found, s.learned.quotes, length);
    }
}

// ---- 7. draft: one drafter forward for all slots that continue ----

// Whether a drafter reads a slot's pending taps even if the slot does not draft. Only few may wait, so that the tap
// store keeps free cells, and a slot that drafts again has little to catch up with. On the host more of a prompt's taps
// may wait, so that a wider pass reads them. Those of a slot that is set aside wait for its rows, which are on the
// host.
static bool must_flush(const slot & s, const pending_taps & taps) {
    constexpr int32_t MAX_READING = 256;
    if (s.held->is_aside()) {
        return false;
    }
    return taps.of(s.id).rows >= (s.reading() && !taps.store() ? MAX_READING : target::MAX_STORED_TAPS);
}

// Injects the taps of accepted rows, and denoises a block for every slot whose tree may grow. Other slots inject their
// taps only when they hold many.
void engine::draft() {
    const step_choice & choice = next_.choice;
    for (int32_t i = 0; i < drafts_.size(); ++i) {
        std::vector<draft_memory::part> parts;
        int32_t                         n_denoised = 0, n_injected = 0;
        for (slot & s : slots_) {
            const bool denoises =
                i == choice.drafter && choice.length > 1 && s.writing() && controller_.max_nodes(s, choice) > 1;
            if (denoises || must_flush(s, drafts_[i].taps())) {
                const int32_t window =
                    denoises ? controller_.choose_window(s, i, drafts_[i].drafter().n_ctx()) : draft_window::ALL;
                parts.push_back({ s.id, denoises, s.drafts.anchor, &s.held->tokens, s.held->position(), window });
                n_injected += drafts_[i].taps().of(s.id).rows;
                n_denoised += denoises;
            }
        }
        if (!parts.empty()) {
            draft_with(drafts_[i], parts, n_denoised, n_injected);
        }
        if (const std::string why = drafts_[i].take_failure(); !why.empty()) {
            controller_.observe_failure(slots_, next_, i, why);
        }
    }
}

// One pass of a drafter.
void engine::draft_with(
    draft_memory & drafts, const std::vector<draft_memory::part> & parts, int32_t n_denoised, int32_t n_injected) {
    const step_choice & choice = next_.choice;
    if (n_denoised > 0) {
        drafts.drafter().follow_texts();
    }
    std::vector<dflash::draft> blocks;
    const stopwatch            watch;
    const bool                 ran     = drafts.run(parts, choice.length, blocks);
    const double               pass_ms = watch.ms();
    if (!ran || n_denoised == 0) {
        return;
    }
    for (size_t i = 0; i < parts.size(); ++i) {
        if (parts[i].denoises) {
            slot_drafts & next = slots_[parts[i].id].drafts;
            next.block         = std::move(blocks[i]);
            next.drafter       = choice.drafter;
            next.n_denoised    = choice.length;
            next.pass_ms       = pass_ms;
        }
    }
    next_.draft_ms = controller_.observe_draft(pass_, choice, n_denoised, n_injected, pass_ms);
}

// ---- 8. grow: per slot, the best tree for the budget that the controller chose ----

void engine::grow() {
    for (slot & s : slots_) {
        const int32_t max_nodes = controller_.max_nodes(s, next_.choice);
        if (s.writing() && max_nodes > 1) {
            grow_tree(s, max_nodes);
        }
    }
    next_.expected_tokens = controller_.choose_nodes(slots_, next_);
    for (slot & s : slots_) {
        // Block verification decides over a chain that was drawn, not over the likeliest one; its length was chosen
        // without looking.
        if (s.writing() && s.request.block_accept && s.drafts.tree.size() > 1) {
            s.drafts.drawn = draw_chain(s.drafts.block, s.drafts.anchor, s.drafts.tree.size() - 1,
                s.request.sampler->shape(), s.request.sampler->random());
            s.drafts.tree  = s.drafts.drawn.to_tree();
        }
    }
}

// As large as the slot's tree may get: the controller takes its best nodes.
void engine::grow_tree(slot & s, int32_t max_nodes) {
    growth_limits limits;
    limits.budget       = max_nodes;
    limits.max_children = s.request.max_children;
    limits.depth        = std::min(controller_.max_depth(s), std::max(s.request.depth, s.request.quote_depth));
    limits.calibration  = &s.learned.drafters[s.drafts.drafter].calibration;
    limits.quoted       = s.drafts.quoted.empty() ? nullptr : &s.drafts.quoted;
    s.drafts.tree       = dflash::grow(s.drafts.block, s.drafts.anchor, limits);
}

}   // namespace dflash
