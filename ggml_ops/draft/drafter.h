// The drafter: its K/V ring per slot and its one graph per step.
//
// A pass injects the taps of accepted rows and denoises the next block of every slot that asks, in one graph. Keys and
// values of the newest `n_ctx` positions are kept per slot in a ring (position p lives in cell p % n_ctx), so a bounded
// drafter never needs memory for the target's full context. Model: upstream's src/models/dflash.cpp; arithmetic and
// format: package `dflash` (DFlashDraftModel, DFlash2DraftModel).

#pragma once

#include "llama/access.h"
#include "draft/tree.h"

#include "ggml-backend.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace dflash {

struct drafter_params {
    int32_t   n_slots;
    int32_t   n_ctx;     // newest positions kept per slot
    int32_t   n_batch;   // most rows injected in one pass
    int32_t   n_threads;
    bool      flash_attn;
    ggml_type type_k, type_v;   // F16 or F32
};

// One slot's part of a pass.
struct draft_job {
    int32_t       slot;
    const float * taps;   // [n_inject, n_taps * n_embd]: rows of positions pos .. pos + n_inject - 1
    int32_t       n_inject;
    int32_t       pos;       // must be the slot's next position
    bool          denoise;   // also draft the block that starts with `anchor` at position pos + n_inject
    int32_t       anchor;
};

// Full outputs of one block, for parity tests.
struct draft_probe {
    std::vector<float>   hidden;   // [length, n_embd] after the final norm
    std::vector<float>   logits;   // [length, n_vocab_draft]
    std::vector<int32_t> ids;      // [length - 1, top_k]
    std::vector<float>
        scores;   // DFlash: log-probabilities [length - 1, top_k]; DFlash 2: pair scores [length - 1, top_k, top_k]
};

class drafter {
  public:
    // Throws std::runtime_error (wrong pair, unsupported model, no memory) with one sentence.
    drafter(const llama_model * model, const llama_model * target, const drafter_params & params);
    ~drafter();
    drafter(const drafter &) = delete;

    const drafter_weights & weights() const { return w_; }
    int32_t                 block_size() const { return w_.block_size; }
    int32_t                 tap_width() const { return (int32_t) w_.target_layers.size() * w_.n_embd; }
    int32_t                 n_ctx() const { return p_.n_ctx; }
    bool                    lattice() const { return w_.selector_top_k > 0; }
    int32_t                 top_k() const { return top_k_; }
    size_t                  memory_bytes() const;

    // First position not injected yet. Positions below begin() were never injected or have left the ring.
    int32_t next_pos(int32_t slot) const { return rings_[slot].end; }
    // Forget positions >= pos; with a gap ahead (pos > next_pos) everything is forgotten and the ring restarts at pos.
    void rewind(int32_t slot, int32_t pos);

    // One pass. drafts[i] is filled for jobs[i].denoise. length: block tokens, the same for all slots, 2..block_size.
    // Throws std::runtime_error when a backend fails.
    void run(const std::vector<draft_job> & jobs, int32_t length, std::vector<draft> & drafts,
        draft_probe * probe = nullptr);

    int64_t n_graphs_built = 0, n_graphs_reused = 0;

  private:
    struct ring {
        int32_t begin = 0, end = 0;
    };   // positions [begin, end) are in the cells
    struct graph;
    struct shape;
    struct memory;

    graph & prepare(const shape & s);
    void    build(graph & g);
    void    inject_only(const draft_job & job);
    void    set_mask(ggml_tensor * t, int32_t slot, int32_t span, int32_t length, bool sliding);
    void    read(ggml_tensor * ids, ggml_tensor * probs, ggml_tensor * scores, const std::vector<draft_job> & jobs,
           int32_t length, std::vector<draft> & drafts, draft_probe * probe);

    drafter_weights          w_;
    drafter_params           p_;
    int32_t                  top_k_   = 0;
    int32_t                  n_cells_ = 0;   // per slot: block_size scratch cells, one for padding rows, the ring
    int32_t                  first_   = 0;   // first ring cell
    std::vector<ring>        rings_;
    std::vector<int64_t>     d2t_;
    int32_t                  mask_ = 0;   // MASK token
    std::vector<float>       mask_row_;
    std::vector<ggml_fp16_t> mask_half_;

    std::vector<ggml_backend_t>         backends_;
    std::unique_ptr<memory>             kv_;
    std::vector<std::unique_ptr<graph>> graphs_;   // most recently used first
};

}   // namespace dflash
