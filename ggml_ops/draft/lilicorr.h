// LiliCorr: a small transformer reads all candidates of a block at once and scores each pair of neighbours. Sources:
// arXiv 2608.20530; TensorRT-LLM, modeling_lilicorr.py.

#pragma once

#include "draft/selector.h"

#include "ggml-cpp.h"

namespace dflash {

// Each candidate becomes a row: its embedding, the hidden state that proposed it, its probability, position and rank.
// The correlator's layers let all rows of a block see each other. Of each row come two unit vectors, and
// score(next | prev) = scale * <out[prev], in[next]>; before the first position stands the context row of the last
// committed token, the one before the anchor.
//
// That row may have been injected in an earlier pass than the one that denoises: the newest one of every slot is kept.
class lilicorr_selector : public selector {
  public:
    // Throws std::runtime_error where memory is short, or for more candidates than tokens.
    lilicorr_selector(const drafter_model & model, int32_t n_slots);

    int32_t n_scores() const override { return top_k() * top_k(); }
    void    keep(draft_graph & graph, ggml_tensor * taps) const override;
    void    build(draft_graph & graph, ggml_tensor * hidden, ggml_tensor * logits) const override;
    void    finish(draft & drafted, draft_probe * probe) const override { finish_pairs(drafted, probe); }

  private:
    void          fill_ranks() const;
    void          fill_bias() const;
    ggml_tensor * context_of(draft_graph & graph) const;

    const drafter_model &   model_;
    ggml_context_ptr        ctx_;
    ggml_backend_buffer_ptr buffer_;
    ggml_tensor *           newest_ = nullptr;   // [n_embd, n_slots + 1] context rows; the last takes what is not kept
    ggml_tensor *           ranks_  = nullptr;   // [2, top_k]: what a candidate's rank says of it
    ggml_tensor *           bias_   = nullptr;   // [n, n, n_head] of attention, by positions: of keys, then of queries
};

}   // namespace dflash
