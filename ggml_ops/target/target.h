// The target: its context and memory, the rows of its next pass, and where a pass leaves logits and taps.

#pragma once

#include "base/tree.h"
#include "llama/drafter_model.h"
#include "llama/logit_store.h"
#include "llama/tap_store.h"
#include "target/batch.h"
#include "target/memory.h"
#include "target/model_pair.h"
#include "target/pass_limits.h"

#include "llama-cpp.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace dflash {

class target {
  public:
    // Taps that a sequence may leave in the tap store while it does not draft.
    static constexpr int32_t MAX_STORED_TAPS = 64;

    // `models` must outlive this. Throws status_error.
    target(const dflash_engine_params & params, const model_pair & models);
    target(const target &) = delete;

    llama_context *     context() const { return ctx_.get(); }
    const llama_model * model() const { return llama_get_model(ctx_.get()); }
    const llama_vocab * vocab() const { return llama_model_get_vocab(model()); }
    int32_t             n_vocab() const { return llama_vocab_n_tokens(vocab()); }
    // The given ones; what depends on the model has its value (n_ctx, flash_attn, kv_unified, share_ctx).
    const dflash_engine_params & params() const { return params_; }
    const pass_limits &          limits() const { return limits_; }
    dflash::memory &             memory() { return *memory_; }
    const dflash::memory &       memory() const { return *memory_; }
    // What decided the context's size: "given", "training" or "memory".
    const char * ctx_limit() const { return ctx_limit_; }
    // Why it cannot verify drafts, empty if it can.
    const std::string & no_draft() const { return no_draft_; }
    // Whether passes of few widths use their graphs again: all of it is on devices, and its memory takes padded trees.
    bool pads_passes() const;
    // Bytes on the host for what the largest pass leaves there.
    size_t output_bytes() const;
    // Takes that memory for the widest pass, so that it does not grow while passes become wider. Throws if there is
    // none.
    void reserve_outputs();

    // ---- taps ----

    // Memory for the taps of these layers where target and drafter compute; null: they go over the host. Throws
    // DFLASH_ERROR_MEMORY.
    tap_store * create_tap_store(const drafter_model & drafter);
    tap_store * taps() const { return taps_.get(); }
    // From now on passes leave taps of these layers; the architecture must offer them (access_has_tap).
    void set_tapped_layers(const std::vector<int32_t> & layers);
    // From now on passes also leave their final hidden states, as MTP layers read them.
    void tap_final_state();
    // Copies the taps of rows [row, row + n) of the last pass from the host's memory: [n, layers * n_embd].
    void read_taps(int32_t row, int32_t n, float * out) const;
    // The same of the final hidden states: [n, n_embd_out].
    void read_final_state(int32_t row, int32_t n, float * out) const;

    // ---- a pass ----

    batch &       rows() { return batch_; }
    const batch & rows() const { return batch_; }
    // Whether a tree has to be open (batch::tree_form). rolls_back: the walk may leave a part of it; tapes roll a chain
    // back as a tree.
    bool opens(const tree & t, bool rolls_back, int32_t padded_size = 0) const;
    // Computes the rows of the batch; their taps need free cells of the store (draft_memory::free_tap_cells). Returns
    // llama_process()'s code; throws where an RPC server has failed.
    int  process();
    void process(const char * what);   // throws DFLASH_ERROR_COMPUTE that names `what`
    // Frees the tap store's cells of the last pass that no sequence keeps.
    void end_pass();
    // Whether the last pass found its graph ready.
    bool reused_graph() const { return reused_graph_; }
    void interrupt() { interrupted_ = true; }
    void clear_interrupt() { interrupted_ = false; }

    // ---- logits ----

    logit_store * logits() const { return logits_.get(); }   // null: they go to the host

  private:
    void    set_limits();
    int32_t wanted_snapshots() const;
    void    create_context();
    void    create_with_attention(llama_context_params & cp);
    void    create_logit_store();
    void    set_tree_support();

    const model_pair &              models_;
    dflash_engine_params            params_;   // the texts that it points to live only during load
    pass_limits                     limits_;
    const char *                    ctx_limit_ = "";
    std::unique_ptr<tap_store>      taps_;     // outlive the context
    std::unique_ptr<logit_store>    logits_;   // outlive the context
    llama_context_ptr               ctx_;
    std::unique_ptr<dflash::memory> memory_;
    std::string                     no_draft_;
    std::vector<int32_t>            tapped_layers_;
    bool                            taps_final_state_ = false;
    batch                           batch_;
    bool                            reused_graph_ = false;
    bool                            is_broken_    = false;   // a pass threw
    std::atomic<bool>               interrupted_{ false };
};

}   // namespace dflash
