// DSpark: how likely a token is depends on the one before it, by a low-rank table over pairs of tokens (the Markov
// head). Source: speculators, models/dspark; upstream's build_dspark_markov_head().

#pragma once

#include "draft/selector.h"

#include "ggml-cpp.h"

namespace dflash {

// score(next | prev) = logit[next] + <markov_next[next], markov_prev[prev]>. Before the first position stands the
// anchor.
//
// The published code decodes one chain: at each position the best token of the whole vocabulary, given the one before.
// Done literally that reads the table once per position. Here a guess of that chain is made among the candidates that
// the logits alone rank first, then one product scores the whole vocabulary of all positions given the guess, and the
// candidates are taken from there. If the guess is the published chain, the best path of the lattice is, too: a
// position's candidates hold its best token given the right one before. With the trained pocket drafters the guess was
// right in each of 460 blocks. With random tables whose scores outweigh the logits it is not, and the chain is another
// from there on.
class markov_selector : public selector {
  public:
    // d2t: the target's token of each draft token, empty: the same.
    markov_selector(const drafter_model & model, const std::vector<int64_t> & d2t);

    int32_t n_scores() const override { return top_k() * (top_k() + n_extra()); }
    void    build(draft_graph & graph, ggml_tensor * hidden, ggml_tensor * logits) const override;
    void    finish(draft & drafted, draft_probe * probe) const override;

  private:
    struct candidates {
        ggml_tensor * ids;     // I32 [k, n_out]
        ggml_tensor * pairs;   // scores [k next, k prev, n_pos, n_slots]
        ggml_tensor * prev;    // embeddings of what may stand before: [rank, k, n_pos, n_slots]
    };

    // Columns beside the k x k pair scores: see finish().
    int32_t       n_extra() const { return model_.confidence ? 3 : 2; }
    ggml_tensor * embed(ggml_context * ctx, ggml_tensor * ids) const;
    candidates    score(draft_graph & graph, ggml_tensor * logits, ggml_tensor * ids) const;
    ggml_tensor * guess(draft_graph & graph, const candidates & c) const;
    ggml_tensor * confidence(draft_graph & graph, ggml_tensor * hidden, const candidates & c) const;

    const drafter_model &   model_;
    ggml_context_ptr        ctx_;
    ggml_backend_buffer_ptr buffer_;
    ggml_tensor *           target_ids_ = nullptr;   // I32 [1, n_vocab_draft] or null: the same
};

}   // namespace dflash
