// The way of a request to its slot: prepared on the caller's thread, started on the engine's.

#include "engine/request.h"

#include "accept/sampling_params.h"
#include "base/json_fields.h"
#include "engine/engine.h"

namespace dflash {

void require_lattice(const drafter * drafter) {
    if (!drafter || !drafter->kind().lattice) {
        const std::string found =
            drafter ? std::string("this one is a ") + drafter->kind().title + " drafter" : "there is none";
        throw field_error(
            "accept", "block needs a " + lattice_kinds() + " drafter, and " + found + ": leave accept at match");
    }
}

void engine::check_vocabulary(const std::string & field, const int32_t * tokens, int32_t n) const {
    const int32_t n_vocab = llama_vocab_n_tokens(vocab());
    for (int32_t i = 0; i < n; ++i) {
        if (tokens[i] < 0 || tokens[i] >= n_vocab) {
            throw status_error(DFLASH_ERROR_ARG, field + "[" + std::to_string(i) + "] is " + std::to_string(tokens[i]) +
                                                     ", outside the vocabulary of " + std::to_string(n_vocab));
        }
    }
}

void engine::check_tokens(const int32_t * tokens, int32_t n) const {
    if (!tokens || n < 1) {
        throw status_error(DFLASH_ERROR_ARG, "tokens is empty: a prompt needs at least one token");
    }
    check_vocabulary("tokens", tokens, n);
    if (n >= limits_.n_ctx_slot) {
        throw status_error(DFLASH_ERROR_ARG, "the prompt has " + std::to_string(n) + " tokens, a slot's context is " +
                                                 std::to_string(limits_.n_ctx_slot) +
                                                 ": shorten it or start with a larger -c");
    }
}

void engine::check_probs(const dflash_request & r) const {
    check_range("n_probs", r.n_probs, 0, llama_vocab_n_tokens(vocab()));
    check_range("probs_from", r.probs_from, 0, r.n_tokens);
    if (r.probs_from > 0 && r.n_probs == 0) {
        throw field_error("probs_from", "needs n_probs: ask for at least 1");
    }
    if (r.probs_from > 0 && r.post_sampling_probs) {
        throw field_error("post_sampling_probs", "prompt tokens are not sampled: leave it, or probs_from, out");
    }
}

void engine::check_prediction(const dflash_request & r) const {
    check_range("n_prediction", r.n_prediction, 0, limits_.n_ctx_slot);
    if (r.n_prediction > 0) {
        check_vocabulary("prediction", r.prediction, r.n_prediction);
    }
}

// Any thread: reads only what is fixed after loading. The sampler, too: llama.cpp's samplers and grammars keep a
// pointer to the vocabulary, which nothing writes.
std::unique_ptr<dflash_prepared> engine::prepare(const dflash_request & r) const {
    check_tokens(r.tokens, r.n_tokens);
    if (r.n_predict < -1) {
        throw status_error(DFLASH_ERROR_ARG, "n_predict is " + std::to_string(r.n_predict) + ", must be >= -1");
    }
    check_range("budget", r.budget, 0, DFLASH_MAX_NODES);
    check_range("draft", r.draft, -1, DFLASH_DRAFT_TREE);
    check_range("accept", r.accept, -1, DFLASH_ACCEPT_BLOCK);
    check_range("draft_n_max", r.draft_n_max, 0, DFLASH_MAX_NODES - 1);
    check_range("lookup", r.lookup, -1, 1);
    if (r.accept == DFLASH_ACCEPT_BLOCK) {
        require_lattice(drafter_.get());
    }
    check_probs(r);
    check_prediction(r);
    const common_params_sampling sampling = parse_sampling(model_.get(), r.sampling ? r.sampling : "");

    auto p   = std::make_unique<dflash_prepared>();
    p->owner = this;
    p->prompt.assign(r.tokens, r.tokens + r.n_tokens);
    p->sampler = std::make_unique<sampler>(model_.get(), sampling);
    for (const int32_t token : p->prompt) {
        p->sampler->accept_prompt(token);
    }
    if (r.n_probs > 0 && r.post_sampling_probs) {
        p->sampler->keep_drawn_from();
    }
    p->n_predict     = r.n_predict;
    p->n_probs       = r.n_probs;
    p->post_probs    = r.n_probs > 0 && r.post_sampling_probs;
    p->probs_from    = r.probs_from;
    p->predicted     = prediction({ r.prediction, r.prediction + r.n_prediction });
    p->cache_prompt  = r.cache_prompt;
    p->return_drafts = r.return_drafts;
    p->greedy        = sampling.temp <= 0.0f;

    // A prediction needs no drafter, but memory that rolls back: a recurrent one does so only if there is a drafter.
    const bool    can_draft = no_draft_.empty() && (drafter_ || (r.n_prediction > 0 && !is_recurrent()));
    const int32_t mode      = !can_draft ? DFLASH_DRAFT_OFF : r.draft >= 0 ? r.draft : params_.draft;
    const int32_t rule      = r.accept >= 0 ? r.accept : params_.accept;
    p->budget               = mode == DFLASH_DRAFT_OFF ? 1 : r.budget ? r.budget : params_.budget;
    p->block       = mode != DFLASH_DRAFT_OFF && rule == DFLASH_ACCEPT_BLOCK && p->sampler->gives_distribution();
    p->width       = mode == DFLASH_DRAFT_TREE && no_tree_.empty() && !p->block ? DFLASH_MAX_NODES : 1;
    p->depth       = r.draft_n_max ? std::min(r.draft_n_max, limits_.n_draft_max) : limits_.n_draft_max;
    p->quote_depth = r.draft_n_max ? std::min(r.draft_n_max, limits_.n_quote_max) : limits_.n_quote_max;
    p->lookup      = r.lookup < 0 ? params_.lookup : r.lookup > 0;
    return p;
}

slot & engine::idle_slot(int32_t i) {
    if (at(i).running()) {
        throw status_error(
            DFLASH_ERROR_BUSY, "slot " + std::to_string(i) + " is running: wait for its end or cancel it");
    }
    return slots_[i];
}

void engine::submit(int32_t i, prepared_request & p) {
    slot & s = idle_slot(i);
    if (p.owner != this) {
        throw status_error(DFLASH_ERROR_ARG, "prepared belongs to another engine: prepare the request with this one");
    }
    s.prompt  = std::move(p.prompt);
    s.sampler = std::move(p.sampler);
    s.greedy  = p.greedy;
    controller_.begin_answer(s);
    s.n_predict          = p.n_predict;
    s.budget             = p.budget;
    s.width              = p.width;
    s.depth              = p.depth;
    s.quote_depth        = p.quote_depth;
    s.lookup             = p.lookup;
    s.block              = p.block;
    s.n_probs            = p.n_probs;
    s.post_probs         = p.post_probs;
    s.probs_from         = p.probs_from;
    s.return_drafts      = p.return_drafts;
    s.reason             = "";
    s.n_denoised         = 0;
    s.draft_ms           = 0;
    s.predicted          = std::move(p.predicted);
    s.stats              = {};
    s.stats.n_prediction = s.predicted.size();
    s.clear_tree();
    s.anchor = -1;
    s.error.clear();

    s.caches         = p.cache_prompt;
    s.leader         = {};
    s.stats.n_prompt = (int32_t) s.prompt.size();
    s.stats.n_cached = take_over(s, reusable_part(s.prompt, s.probs_from), p.cache_prompt);
    s.n_asked        = s.stats.n_prompt;
    s.save_at        = s.follows() ? 0 : checkpoint_place(s);
    s.t_submit_us    = llama_time_us();
    s.t_start_us = s.t_first_us = 0;
    s.state                     = DFLASH_READING;
    if (idle_costs_ && params_.cache_idle_slots && host_.enabled()) {
        for (slot & other : slots_) {
            if (!other.running() && !other.tokens.empty()) {
                leave(other);
            }
        }
    }
}

void engine::cancel(int32_t i) {
    at(i);
    slot & s = slots_[i];
    if (s.running()) {
        finish(s, DFLASH_IDLE);
    }
    if (s.is_aside()) {   // its cells are others' now
        leave(s);
    }
}

// From the next sample on. The tree of the next pass is walked as any other: what it does not hold was not drafted.
bool engine::end_reasoning(int32_t i) {
    at(i);
    slot & s = slots_[i];
    if (!s.running()) {
        return false;
    }
    llama_tokens generated;
    if (s.writing()) {
        generated.assign(s.tokens.begin() + (ptrdiff_t) s.prompt.size(), s.tokens.end());
        generated.push_back(s.anchor);
    }
    const bool ends = s.sampler->end_reasoning(generated);
    s.block &= s.sampler->gives_distribution();
    return ends;
}

}   // namespace dflash
