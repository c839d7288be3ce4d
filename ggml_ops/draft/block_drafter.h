// A drafter with layers of its own (a `dflash` file): one pass injects the taps of accepted rows and denoises the next
// block of every slot that asks for one.

#pragma once

#include "draft/drafter.h"
#include "draft/graph.h"
#include "draft/head_part.h"
#include "draft/kv_ring.h"
#include "draft/selector.h"
#include "draft/shared_head.h"
#include "draft/target_ids.h"
#include "llama/drafter_model.h"

#include "ggml-cpp.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace dflash {

class tap_store;   // llama/tap_store.h

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

class block_drafter : public drafter {
  public:
    // Throws std::runtime_error with one sentence (wrong pair, unsupported model, out of memory).
    block_drafter(const llama_model * model, const llama_model * target, const drafter_params & params);
    // Drafts in place of `other`, with what that holds of the slots. Throws like the first, also if its form differs.
    block_drafter(const llama_model * model, const llama_model * target, const block_drafter & other);

    const drafter_model & model() const { return model_; }
    const drafter_kind &  kind() const override { return *model_.kind; }
    tap_source            taps() const override { return tap_source::layers; }
    int32_t               tap_size() const override { return model_.tap_size(); }
    int32_t               max_length() const override { return model_.max_length(); }
    int32_t               n_ctx() const override { return params_.n_ctx; }
    bool                  on_device() const override { return on_device_; }
    int32_t               top_k() const override { return selector_->top_k(); }
    drafter_layers        layers() const override;
    bool                  has_sections() const override { return model_.has_sections(); }
    // Throws std::runtime_error for an invalid id: a device or a server may return anything.
    int32_t         target_token(int32_t id) const;
    bool            has_windows() const override { return true; }
    kv_ring &       context() override { return *kv_; }
    const kv_ring & context() const override { return *kv_; }

    std::map<ggml_backend_buffer_type_t, size_t> compute_memory() const override { return graphs_->memory(); }
    std::map<ggml_backend_buffer_type_t, size_t> copied_memory() const override;

    void reserve() override;
    // length: 2..model().max_length().
    void run(const std::vector<draft_job> & jobs, int32_t length, std::vector<draft> & drafts) override {
        run(jobs, length, drafts, nullptr);
    }
    void run(const std::vector<draft_job> & jobs, int32_t length, std::vector<draft> & drafts, draft_probe * probe);

    void count_text(const std::vector<int32_t> & tokens, size_t first) override;
    void follow_texts() override;

  private:
    block_drafter(const llama_model * model, const llama_model * target, const drafter_params & params,
        const block_drafter * other);

    void                         share_part(const llama_model * target, bool shares, const block_drafter * other);
    void                         copy_remote(const llama_model * target, const block_drafter * other);
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
    void                         set_masks(const draft_graph & graph, int32_t i, int32_t window);
    void                         set_mask(const draft_mask & mask, int32_t slot, int32_t window, bool causal);
    void read_drafts(const draft_graph & graph, const std::vector<draft_job> & jobs, std::vector<draft> & drafts,
        draft_probe * probe) const;

    const llama_model *  loaded_;   // of the drafter's file
    drafter_model        model_;
    drafter_params       params_;
    int32_t              mask_token_;
    bool                 on_device_ = false;
    transfer_forms       transfers_;
    std::vector<int64_t> d2t_;   // empty: draft tokens are target tokens

    std::vector<float>       mask_;   // scratch space of set_mask()
    std::vector<ggml_fp16_t> mask_f16_;

    std::shared_ptr<head_part>   part_;         // null: which tokens may be proposed is fixed
    std::shared_ptr<shared_head> head_;         // null: no copy of the whole head is needed
    std::unique_ptr<target_ids>  target_ids_;   // null: draft tokens are target tokens

    std::vector<ggml_backend_ptr> backends_;   // must outlive the members below
    std::shared_ptr<kv_ring>      kv_;         // the next drafter goes on with it
    std::unique_ptr<selector>     selector_;
    std::unique_ptr<graph_cache>  graphs_;
};

}   // namespace dflash
