#include "engine/slot_walk.h"

#include "accept/sampling.h"

#include <functional>

namespace dflash {

namespace {

int32_t n_vocab_of(const llama_context * ctx) {
    return llama_vocab_n_tokens(llama_model_get_vocab(llama_get_model(ctx)));
}

// The probability of a token that was sampled at this row, if the request wants it.
void add_probs(slot & s, llama_context * ctx, int32_t row, int32_t token) {
    const request & r = s.request;
    if (r.post_probs) {
        s.result.probs.add(r.sampler->drawn_from(), token, r.n_probs);
    } else if (r.n_probs > 0) {
        s.result.probs.add(logits_of(ctx, row), n_vocab_of(ctx), token, r.n_probs);
    }
}

walk_result walk_block(slot & s, llama_context * ctx, int32_t first_row, const std::function<bool(int32_t)> & ends) {
    const request &                      r = s.request;
    std::vector<std::vector<token_prob>> drawn_from;   // [rows]
    const walk_result                    walked =
        block_walk(s.drafts.drawn, *r.sampler, ctx, first_row, ends, r.post_probs ? &drawn_from : nullptr);
    for (size_t i = 0; i < walked.tokens.size(); ++i) {
        if (r.post_probs) {
            s.result.probs.add(std::move(drawn_from[i]), walked.tokens[i], r.n_probs);
        } else {
            add_probs(s, ctx, first_row + (int32_t) i, walked.tokens[i]);
        }
    }
    return walked;
}

}   // namespace

walk_result walk_slot(slot & s, llama_context * ctx) {
    static const tree   root{ { node::root(-1) } };
    const llama_vocab * vocab     = llama_model_get_vocab(llama_get_model(ctx));
    const tree &        t         = s.pass.reads ? root : s.drafts.tree;
    const int32_t       first_row = s.pass.sampled_row();
    const auto          ends      = [&](int32_t token) { return llama_vocab_is_eog(vocab, token); };
    if (s.request.block_accept && t.size() > 1) {
        return walk_block(s, ctx, first_row, ends);
    }
    const auto sample = [&](int32_t node) {
        const llama_token token = s.request.sampler->sample(ctx, first_row + node);
        add_probs(s, ctx, first_row + node, token);
        s.request.sampler->accept(token);
        return token;
    };
    return walk(t, sample, ends);
}

void add_prompt_probs(slot & s, llama_context * ctx) {
    const request & r = s.request;
    for (int32_t i = 0; s.pass.reads && r.probs_from > 0 && i < s.pass.n_rows; ++i) {
        if (const int32_t at = s.n_past() + i; r.wants_probs_after(at)) {
            s.result.probs.add(logits_of(ctx, s.pass.first_row + i), n_vocab_of(ctx), r.prompt[at + 1], r.n_probs);
            ++s.result.n_prompt_probs;
        }
    }
}

}   // namespace dflash
