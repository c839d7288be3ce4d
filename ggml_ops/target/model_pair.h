// The models of an engine: loaded and checked, each where its placement says, on this machine and on RPC servers.

#pragma once

#include "base/error.h"
#include "files/gguf_file.h"
#include "llama/weight_lock.h"
#include "target/memory_table.h"
#include "target/placement.h"
#include "target/rpc_servers.h"

#include "llama-cpp.h"

#include <stdexcept>
#include <vector>

namespace dflash {

// Errors of a loaded drafter are reported as errors of the pair.
template <class F> auto pair_error(F && f) {
    try {
        return f();
    } catch (const status_error &) {
        throw;
    } catch (const std::runtime_error & e) {
        throw status_error(DFLASH_ERROR_PAIR, e.what());
    }
}

struct load_options {
    dflash_progress_callback        progress  = nullptr;
    void *                          user      = nullptr;   // of `progress`
    bool                            plans     = false;     // models get no data, and buffers no memory (plan/)
    std::vector<ggml_backend_dev_t> stand_ins = {};        // of a plan: devices in place of this machine's
};

// The model of a file beside the target's: a drafter, or MTP layers alone.
struct drafter_file {
    llama_model_ptr model;
    weight_lock     lock;   // with mlock
    buffer_bytes    weights;
};

class model_pair {
  public:
    // Throws status_error that names the field or the file.
    model_pair(const dflash_engine_params & params, const load_options & options);

    llama_model * target() const { return target_.get(); }
    llama_model * drafter() const { return is_mtp_file_ ? nullptr : file_.model.get(); }   // null: none
    // The model whose MTP layers draft: the target itself, or that of a file with them alone; null: none do.
    llama_model *       mtp() const { return !uses_mtp_ ? nullptr : is_mtp_file_ ? file_.model.get() : target_.get(); }
    bool                drafts() const { return file_.model || uses_mtp_; }
    const llama_vocab * vocab() const { return llama_model_get_vocab(target_.get()); }
    const rpc_servers & rpc() const { return rpc_; }
    bool                plans() const { return plans_; }
    // Of drafts, with the anchor; 0: there is no drafter.
    int32_t max_length() const { return max_length_; }
    // Whether the target has recurrent layers.
    bool recurrent() const;
    // Whether there is a drafter and any layer of either model lies on a device.
    bool on_devices() const;

    // The target's output projection in its file, and that of the MTP layers in theirs.
    const gguf_tensor & head() const { return head_; }
    const gguf_tensor & mtp_head() const { return mtp_head_; }

    const buffer_bytes & target_weights() const { return target_weights_; }
    const buffer_bytes & drafter_weights() const { return file_.weights; }
    // Another drafter's file, placed like the one in use; nothing uses it yet. Throws status_error.
    drafter_file load_other_drafter(const char * path, const dflash_engine_params & params) const;
    // Frees the file that was in use.
    void use_drafter(drafter_file file) {
        file_.lock.reset();   // before what it locks
        file_ = std::move(file);
    }

    // Bytes that are left on the host when the weights are loaded, as far as is known.
    double spare_memory() const;

  private:
    void            place(const dflash_engine_params & params, const std::vector<ggml_backend_dev_t> & stand_ins);
    drafter_devices drafter_choice(
        const std::vector<ggml_backend_dev_t> & known, const std::vector<ggml_backend_dev_t> & stand_ins) const;
    void         load(const dflash_engine_params & params, const load_options & options);
    void         load_drafter(const dflash_engine_params & params, const load_options & options);
    drafter_file load_file(const char * path, const dflash_engine_params & params, const load_options & options) const;
    void         find_heads(const gguf_file & target);
    weight_lock  lock_packed(const llama_model * model, const dflash_engine_params & params) const;
    int32_t      longest_draft() const;
    void         check_target(const dflash_engine_params & params) const;

    rpc_servers     rpc_;
    bool            plans_;
    uint64_t        host_memory_;                    // bytes, 0: what the system says
    placement       target_place_, drafter_place_;   // what the models borrow
    llama_model_ptr target_;
    weight_lock     target_lock_;   // with mlock
    drafter_file    file_;          // model null: none
    gguf_tensor     head_, mtp_head_;
    buffer_bytes    target_weights_;
    bool            uses_mtp_ = false, is_mtp_file_ = false;
    int32_t         max_length_ = 0;
};

}   // namespace dflash
