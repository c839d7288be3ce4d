// Domino: a recurrent cell reads the tokens of the block from the anchor on, and corrects each position's logits by its
// state. Source: SpecForge, modeling/draft/domino.py.

#pragma once

#include "draft/selector.h"

namespace dflash {

// logits[i] + out * silu(in_hidden * hidden[i] + in_state * state[i]), where state[i] has read the anchor and the
// tokens of the i positions before. The first `domino_prefix` positions are not corrected.
//
// The published code decodes one chain: at each position the best token of the whole vocabulary, given all before. Done
// literally that reads `out`, as large as a head of its own, once for each position. Here the chain is guessed among
// each position's likeliest tokens, then one product corrects the whole vocabulary of all positions, given the guess,
// and the candidates are taken from there. If the guess was right, the best path of the lattice is the published chain.
// A pair of candidates is scored as if the guess stood before it.
class domino_selector : public selector {
  public:
    explicit domino_selector(const drafter_model & model);

    int32_t n_scores() const override { return top_k() * top_k(); }
    void    build(draft_graph & graph, ggml_tensor * hidden, ggml_tensor * logits) const override;
    void    finish(draft & drafted, draft_probe * probe) const override { finish_pairs(drafted, probe); }

  private:
    const drafter_model & model_;
};

}   // namespace dflash
