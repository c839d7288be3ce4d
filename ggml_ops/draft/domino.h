// Domino: a recurrent cell reads the block's tokens, starting at the anchor, and its state corrects each position's
// logits. Source: SpecForge, modeling/draft/domino.py.

#pragma once

#include "draft/selector.h"

namespace dflash {

// logits[i] + out * silu(in_hidden * hidden[i] + in_state * state[i]), where state[i] has read the anchor and the
// tokens of the i positions before. The first `domino_prefix` positions are not corrected.
//
// The published code decodes one chain: at each position the best token of the whole vocabulary, given all previous
// ones. Done literally, this reads `out`, which is as large as an output head, once per position. Here the chain is
// guessed among each position's likeliest tokens; then one product corrects all positions' logits given the guess, and
// candidates are chosen from those. If the guess was right, the lattice's best path is the published chain. Pairs of
// candidates are scored as if the guess preceded them.
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
