// The drafter: one pass injects the taps of accepted rows and denoises the next block of every slot that asks for one.
//
// How to add a kind of drafter: docs/contributing.md. What each kind supports: llama/drafter_kind.h.

#pragma once

#include "draft/draft_vocabulary.h"
#include "draft/graph.h"
#include "draft/growth.h"
#include "draft/kv_ring.h"
#include "draft/selector.h"
#include "draft/shared_head.h"
#include "draft/target_ids.h"
#include "llama/drafter_model.h"
#include "llama/tap_cell.h"

#include "ggml-cpp.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace dflash {

class tap_store;   // llama/tap_store.h

inline constexpr uint32_t ALL_TOKENS = UINT32_MAX;   // of draft_vocab

struct drafter_params {
    int32_t   n_slots;
    int32_t   n_ctx;     // newest positions that a block attends to
    int32_t   n_batch;   // max. rows injected in one pass
    int32_t   n_threads;
    bool      flash_attn;
    bool      kv_offload;       // K and V are on their layers' devices; false: on the host
    ggml_type type_k, type_v;   // F16 or F32
    size_t    history_limit;    // bytes on the host for positions that have left the slots' rings
    // where taps are read from; null: the host
    const tap_store * taps = nullptr;
    // tokens that a drafter without an output projection may propose; 0: chosen by the vocabulary's size
    uint32_t    draft_vocab = 0;
    gguf_tensor head;   // the target's projection in its file
};

// One slot's part of a pass.
struct draft_job {
    int32_t          slot     = 0;
    const float *    taps     = nullptr;   // [n_inject, n_taps * n_embd]: of positions pos .. pos + n_inject - 1
    const tap_cell * cells    = nullptr;   // [n_inject] replaces taps if the drafter reads a store
    int32_t          n_inject = 0;
    int32_t          pos      = 0;       // must be the slot's next position
    bool             denoise  = false;   // also draft the block that starts with `anchor` at position pos + n_inject
    int32_t          anchor   = -1;
};

class drafter {
  public:
    // Throws std::runtime_error with one sentence (wrong pair, unsupported model, out of memory).
    drafter(const llama_model * model, const llama_model * target, const drafter_params & params);
    drafter(const drafter &) = delete;

    const drafter_model & model() const { return model_; }
    const drafter_kind &  kind() const { return *model_.kind; }
    int32_t               tap_size() const { return model_.tap_size(); }
    int32_t               n_ctx() const { return params_.n_ctx; }
    bool                  on_device() const { return on_device_; }
    int32_t               top_k() const { return selector_->top_k(); }
    // Throws std::runtime_error for an invalid id: a device or a server may return anything.
    int32_t target_token(int32_t id) const;
    // What the slots' blocks attend to. run() adds to it.
    kv_ring &       ring() { return *kv_; }
    const kv_ring & ring() const { return *kv_; }
    // Bytes of compute buffers, by buffer type.
    std::map<ggml_backend_buffer_type_t, size_t> compute_memory() const { return graphs_->memory(); }
    // Bytes of the target's weights that were copied, by buffer type.
    std::map<ggml_backend_buffer_type_t, size_t> copied_memory() const;

    // Allocates memory for the largest passes that run() may get.
    void reserve();

    // Runs one pass. drafts[i] is filled if jobs[i].denoise. length: the anchor and the tokens to propose, the same for
    // all slots, 2..model().max_length().
    // Throws std::runtime_error when a backend fails.
    void run(const std::vector<draft_job> & jobs, int32_t length, std::vector<draft> & drafts,
        draft_probe * probe = nullptr);

    // Tokens of a text, from the first-th on: what the drafter may propose follows the texts. The second call lets it,
    // where too much of the newest ones is missing; it takes as long as reading the head's rows.
    void count_text(const std::vector<int32_t> & tokens, size_t first = 0);
    void follow_texts();

    int64_t n_graphs_built = 0, n_graphs_reused = 0;

  private:
    int32_t                      reduced_size(bool shares) const;
    void                         copy_head(const llama_model * target, bool shares);
    void                         read_head();
    void                         set_target_ids();
    void                         skip(draft_job & job, int32_t n_rows) const;
    void                         inject_surplus(std::vector<draft_job> & jobs);
    void                         inject(draft_job & job, int32_t n_rows);
    graph_shape                  shape_of(const std::vector<draft_job> & jobs, int32_t length, bool probe) const;
    draft_graph &                prepare(const graph_shape & shape);
    std::unique_ptr<draft_graph> build_new(const graph_shape & shape) const;
    void                         build(draft_graph & graph) const;
    void                         set_inputs(const draft_graph & graph, const std::vector<draft_job> & jobs);
    void                         set_taps(const draft_graph & graph, const std::vector<draft_job> & jobs);
    void                         set_masks(const draft_graph & graph, int32_t i);
    void                         set_mask(const draft_mask & mask, int32_t slot, int32_t window, bool causal);
    void read_drafts(const draft_graph & graph, const std::vector<draft_job> & jobs, std::vector<draft> & drafts,
        draft_probe * probe) const;

    drafter_model        model_;
    drafter_params       params_;
    int32_t              mask_token_;
    bool                 on_device_ = false;
    transfer_forms       transfers_;
    std::vector<int64_t> d2t_;   // empty: draft tokens are target tokens

    std::vector<float>       mask_;   // scratch space of set_mask()
    std::vector<ggml_fp16_t> mask_f16_;

    std::unique_ptr<shared_head>      head_;         // null: no copy of the head is needed
    std::unique_ptr<draft_vocabulary> vocabulary_;   // null: which tokens may be proposed is fixed
    std::unique_ptr<target_ids>       target_ids_;   // null: draft tokens are target tokens

    std::vector<ggml_backend_ptr> backends_;   // must outlive the members below
    std::unique_ptr<kv_ring>      kv_;
    std::unique_ptr<selector>     selector_;
    std::unique_ptr<graph_cache>  graphs_;
};

}   // namespace dflash
