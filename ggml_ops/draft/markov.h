// DSpark: a token's score depends on the previous one, by a low-rank table over pairs of tokens (the Markov head).
// Source: speculators, models/dspark; upstream's build_dspark_markov_head().

#pragma once

#include "draft/selector.h"

namespace dflash {

// score(next | prev) = logit[next] + <markov_next[next], markov_prev[prev]>. The first position's predecessor is the
// anchor.
//
// The published code decodes one chain: at each position the best token of the whole vocabulary, given the previous
// one. Done literally, this reads the table once per position. Here the chain is guessed among the candidates that the
// logits alone rank highest; then one product scores the whole vocabulary of all positions given the guess, and
// candidates are chosen from those scores. If the guess is the published chain, so is the lattice's best path, because
// each position's candidates include its best token after the right predecessor. With the trained pocket drafters the
// guess was right in all of 460 blocks. With random tables whose scores outweigh the logits it is wrong at some point,
// and the chain differs from there on.
class markov_selector : public selector {
  public:
    explicit markov_selector(const drafter_model & model);

    int32_t n_scores() const override { return top_k() * (top_k() + n_extra()); }
    void    build(draft_graph & graph, ggml_tensor * hidden, ggml_tensor * logits) const override;
    void    finish(draft & drafted, draft_probe * probe) const override;

  private:
    struct candidates {
        ggml_tensor * ids;     // I32 [k, n_out]
        ggml_tensor * pairs;   // scores [k next, k prev, n_pos, n_slots]
        ggml_tensor * prev;    // embeddings of the possible previous tokens: [rank, k, n_pos, n_slots]
    };

    // Columns besides the k x k pair scores: see finish().
    int32_t       n_extra() const { return model_.confidence ? 3 : 2; }
    candidates    score(draft_graph & graph, ggml_tensor * logits, ggml_tensor * ids) const;
    ggml_tensor * guess(draft_graph & graph, const candidates & c) const;
    ggml_tensor * confidence(draft_graph & graph, ggml_tensor * hidden, const candidates & c) const;

    const drafter_model & model_;
};

}   // namespace dflash
