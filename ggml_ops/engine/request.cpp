#include "engine/request.h"

#include "accept/sampling.h"
#include "accept/sampling_params.h"
#include "base/json_fields.h"
#include "draft/drafter.h"
#include "media/live_media.h"
#include "target/target.h"

#include <algorithm>

namespace dflash {

// "A, B or C": the kinds that have a lattice.
static std::string lattice_kinds() {
    std::vector<std::string> titles;
    for (const drafter_kind & kind : DRAFTER_KINDS) {
        if (kind.lattice) {
            titles.emplace_back(kind.title);
        }
    }
    return joined(titles, ", ", " or ");
}

void require_lattice(const drafter_kinds & drafters) {
    if (std::none_of(drafters.begin(), drafters.end(), [](const drafter_kind * kind) { return kind->lattice; })) {
        const std::string found =
            drafters.empty() ? "there is none" : std::string("this one is a ") + drafters[0]->title + " drafter";
        throw field_error(
            "accept", "block needs a ", lattice_kinds(), " drafter, and ", found, ": leave accept at match");
    }
}

static void check_vocabulary(
    const std::string & field, const int32_t * tokens, int32_t n, int32_t n_vocab, bool may_be_media = false) {
    for (int32_t i = 0; i < n; ++i) {
        const bool fits = (tokens[i] >= 0 && tokens[i] < n_vocab) || (may_be_media && is_media(tokens[i]));
        refuse_if(!fits, field, "[", i, "] is ", tokens[i], ", outside the vocabulary of ", n_vocab);
    }
}

void check_text(const int32_t * tokens, int32_t n, const target & target) {
    refuse_if(!tokens || n < 1, "tokens is empty: a prompt needs at least one token");
    check_vocabulary("tokens", tokens, n, target.n_vocab());
}

// The medium of each span, which must be whole and still in use.
static std::vector<std::shared_ptr<medium>> find_media(
    const media_layout & layout, int32_t n_tokens, const live_media & live) {
    std::vector<std::shared_ptr<medium>> media;
    for (const media_span & span : layout.spans()) {
        refuse_if(span.end() > n_tokens, "tokens end within a medium of ", span.size.n_rows, " rows");
        media.push_back(live.find(span.token));
        refuse_if(!media.back(), "tokens[", span.begin, "] is ", span.token,
            ", whose medium is gone: keep its prompt until the request is made");
    }
    return media;
}

prompt_media check_tokens(
    const int32_t * tokens, int32_t n, const target & target, const media_table & table, const live_media & live) {
    refuse_if(!tokens || n < 1, "tokens is empty: a prompt needs at least one token");
    check_vocabulary("tokens", tokens, n, target.n_vocab(), true);
    prompt_media found;
    found.layout = table.layout({ tokens, tokens + n });
    found.media  = find_media(found.layout, n, live);
    if (const int32_t n_ctx = target.limits().n_ctx_slot; n >= n_ctx) {
        throw status_error(DFLASH_ERROR_ARG, "the prompt has ", n, " tokens, a slot's context is ", n_ctx,
            ": shorten it or start with a larger -c");
    }
    return found;
}

static void check_probs(const dflash_request_params & r, int32_t n_vocab, const media_layout & media) {
    check_range("n_probs", r.n_probs, 0, n_vocab);
    check_range("probs_from", r.probs_from, 0, r.n_tokens);
    refuse_field_if(r.probs_from > 0 && r.n_probs == 0, "probs_from", "needs n_probs: ask for at least 1");
    refuse_field_if(r.probs_from > 0 && r.post_sampling_probs, "post_sampling_probs",
        "prompt tokens are not sampled: leave it, or probs_from, out");
    refuse_field_if(r.probs_from > 0 && media.next(r.probs_from - 1) < r.n_tokens, "probs_from",
        "rows of media have no probability: begin behind the last one");
}

static void check_request(const dflash_request_params & r, const target & target, const drafter_kinds & drafters,
    const media_layout & media) {
    refuse_if(r.n_predict < -1, "n_predict is ", r.n_predict, ", must be >= -1");
    refuse_if(is_media(r.tokens[r.n_tokens - 1]), "the prompt ends with a medium: let text follow it");
    check_range("budget", r.budget, 0, DFLASH_MAX_NODES);
    check_range("draft", r.draft, -1, DFLASH_DRAFT_TREE);
    check_range("accept", r.accept, -1, DFLASH_ACCEPT_BLOCK);
    check_range("draft_n_max", r.draft_n_max, 0, DFLASH_MAX_NODES - 1);
    check_range("lookup", r.lookup, -1, 1);
    if (r.accept == DFLASH_ACCEPT_BLOCK) {
        require_lattice(drafters);
    }
    check_probs(r, target.n_vocab(), media);
    check_range("n_prediction", r.n_prediction, 0, target.limits().n_ctx_slot);
    if (r.n_prediction > 0) {
        refuse_if(!r.prediction, "prediction is NULL");
        check_vocabulary("prediction", r.prediction, r.n_prediction, target.n_vocab());
    }
}

// llama.cpp's samplers and grammars keep a pointer to the vocabulary, which nothing writes.
static std::shared_ptr<sampler> make_sampler(
    const dflash_request_params & r, const common_params_sampling & params, const target & target) {
    auto s = std::make_shared<sampler>(target.model(), params);
    for (int32_t i = 0; i < r.n_tokens; ++i) {
        if (!is_media(r.tokens[i])) {
            s->accept_prompt(r.tokens[i]);
        }
    }
    if (r.n_probs > 0 && r.post_sampling_probs) {
        s->keep_drawn_from();
    }
    return s;
}

// Sets how the request drafts. Quotations and predictions need no drafter, but a memory that can be rolled back.
static void set_drafting(request & p, const dflash_request_params & r, const dflash_engine_params & params,
    const target & target, bool has_drafters) {
    const pass_limits & limits = target.limits();
    p.lookup                   = r.lookup < 0 ? params.lookup : r.lookup > 0;
    p.lookup_owner             = r.lookup_owner;
    p.depth                    = r.draft_n_max ? std::min(r.draft_n_max, limits.n_draft_max) : limits.n_draft_max;
    p.quote_depth              = r.draft_n_max ? std::min(r.draft_n_max, limits.n_quote_max) : limits.n_quote_max;
    const int32_t mode         = r.draft >= 0 ? r.draft : params.draft;
    const bool    has_source   = has_drafters || p.lookup || r.n_prediction > 0;
    if (mode == DFLASH_DRAFT_OFF || !has_source || !target.no_draft().empty()) {
        p.budget = 1;
        return;
    }
    const int32_t rule = r.accept >= 0 ? r.accept : params.accept;
    p.budget           = r.budget ? r.budget : params.budget;
    p.block_accept     = rule == DFLASH_ACCEPT_BLOCK && p.sampler->gives_distribution();
    const bool tree    = mode == DFLASH_DRAFT_TREE && target.memory().no_tree().empty() && !p.block_accept;
    p.max_children     = tree ? DFLASH_MAX_NODES : 1;
}

request prepare_request(const dflash_request_params & r, const dflash_engine_params & params, const target & target,
    const drafter_kinds & drafters, const media_table & table, const live_media & live) {
    prompt_media media = check_tokens(r.tokens, r.n_tokens, target, table, live);
    check_request(r, target, drafters, media.layout);
    const common_params_sampling sampling = parse_sampling(target.model(), r.sampling ? r.sampling : "");

    request p;
    p.prompt.assign(r.tokens, r.tokens + r.n_tokens);
    p.media         = std::move(media);
    p.sampler       = make_sampler(r, sampling, target);
    p.n_predict     = r.n_predict;
    p.n_probs       = r.n_probs;
    p.post_probs    = r.n_probs > 0 && r.post_sampling_probs;
    p.probs_from    = r.probs_from;
    p.predicted     = prediction({ r.prediction, r.prediction + r.n_prediction });
    p.cache_prompt  = r.cache_prompt;
    p.return_drafts = r.return_drafts;
    p.greedy        = sampling.temp <= 0.0f;
    set_drafting(p, r, params, target, !drafters.empty());
    return p;
}

}   // namespace dflash
