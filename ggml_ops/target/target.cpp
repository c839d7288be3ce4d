#include "target/target.h"

#include "base/abort_guard.h"
#include "base/log.h"
#include "llama/access.h"
#include "llama/embedding_rows.h"
#include "target/cache_type.h"
#include "target/context_size.h"

#include "llama-ext.h"

#include <algorithm>
#include <cstring>

namespace dflash {

namespace {

constexpr int32_t TAPE_ROWS = 32;   // nodes of a recurrent target's tree; each takes 1/40 of a state
constexpr int32_t MIN_ROWS  = 64;   // of a pass: room for the largest tree

// Why a recurrent target that could roll its state back does not.
constexpr const char * NO_SOURCE =
    "lookup is off and there is no drafter, so no memory was taken to roll its recurrent state back: "
    "leave --lookup on";

}   // namespace

// ---- load ----

target::target(const dflash_engine_params & params, const model_pair & models) : models_(models), params_(params) {
    const abort_guard guard(abort_guard::phase::load);
    models_.rpc().blame([&] {
        set_limits();
        if (models_.plans()) {
            access_plan_contexts(models_.target());
        }
        create_context();
        create_logit_store();
        set_tree_support();
        batch_.set_padding_outputs(pads_passes());
    });
}

// Of a pass: room for the largest tree, and, which llama.cpp asserts, for a row of each sequence, padding's included.
static uint32_t least_rows(const dflash_engine_params & p) { return std::max<uint32_t>(MIN_ROWS, p.n_slots + 1); }

void target::set_limits() {
    if (params_.flash_attn != 0 &&
        access_needs_streams(models_.target())) {   // a cache and a share of the context each
        params_.kv_unified = params_.share_ctx = false;
    }
    const context_size size = choose_context_size(params_, models_);
    params_.n_ctx           = size.n_ctx;
    ctx_limit_              = size.limit;
    limits_.n_ctx_slot      = size.n_ctx_slot;
    limits_.max_length      = models_.max_length();

    const int32_t  n_slots = (int32_t) params_.n_slots, block = std::max(1, limits_.max_length);
    const uint32_t n_prompt_rows = std::min(params_.n_batch, params_.n_ubatch);
    limits_.n_prompt_rows        = (int32_t) n_prompt_rows;
    limits_.n_rows               = (int32_t) std::min(std::max(n_prompt_rows, least_rows(params_)), params_.n_ctx);
    refuse_if(n_slots > limits_.n_rows, "n_slots is ", n_slots, ", more than rows fit one pass (", limits_.n_rows, ")");
    limits_.n_outputs   = std::min(limits_.n_rows, std::max(DFLASH_MAX_NODES, n_slots * block) + n_slots);
    limits_.n_draft_max = params_.draft_n_max ? std::min(params_.draft_n_max, block - 1) : block - 1;
    limits_.n_quote_max = params_.draft_n_max ? params_.draft_n_max : DFLASH_MAX_NODES - 1;
}

static llama_context_params context_params(
    const dflash_engine_params & p, const llama_model * model, const pass_limits & limits) {
    llama_context_params cp  = llama_context_default_params();
    cp.n_ctx                 = p.n_ctx;
    cp.n_batch               = std::max<uint32_t>(p.n_batch, (uint32_t) limits.n_rows);
    cp.n_ubatch              = std::max(p.n_ubatch, least_rows(p));
    cp.n_outputs_max         = (uint32_t) limits.n_outputs;
    cp.n_outputs_max_per_seq = 0;
    cp.n_threads             = p.n_threads;
    cp.n_threads_batch       = p.n_threads_batch;
    cp.type_k                = cache_type(p.type_k, "type_k", false);
    cp.type_v                = cache_type(p.type_v, "type_v", false);
    cp.swa_full              = p.swa_full;
    cp.offload_kqv           = p.kv_offload;
    cp.kv_unified            = p.kv_unified;   // one stream: rows of all slots share one pass, whatever their number
    cp.no_perf               = false;
    const std::string pooling_key = access_arch(model) + ".pooling_type";
    char              pooling[8];
    if (llama_model_meta_val_str(model, pooling_key.c_str(), pooling, sizeof(pooling)) >= 0) {
        // It is a text model all the same. Without the key this is the default, and to set it logs a warning.
        cp.pooling_type = LLAMA_POOLING_TYPE_NONE;
    }
    return cp;
}

// Copies of the recurrent state for each slot, without tapes: a draft may be as long. For quotations alone they may
// take little memory beside the model.
int32_t target::wanted_snapshots() const {
    constexpr size_t QUOTE_MAX = 7, LITTLE = 16;   // tokens, and parts of the model's size
    if (models_.drafts()) {
        return limits_.n_draft_max;
    }
    const size_t each = params_.n_slots * access_snapshot_bytes(models_.target());
    if (!params_.lookup || each == 0) {
        return 0;
    }
    const size_t n_fit = llama_model_size(models_.target()) / LITTLE / each;
    return std::min(limits_.n_quote_max, (int32_t) std::min(QUOTE_MAX, n_fit));
}

// llama.cpp resolves `auto` after the cache's layout is fixed, which can leave V transposed for nothing: decide here.
void target::create_with_attention(llama_context_params & cp) {
    const bool chooses = params_.flash_attn < 0 && !ggml_is_quantized(cp.type_v);   // which needs flash attention
    const auto create  = [&](bool flash_attn) {
        ctx_.reset();   // frees its memory before another one takes as much
        cp.flash_attn_type = flash_attn ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
        ctx_.reset(llama_init_from_model(models_.target(), cp));
        params_.flash_attn = flash_attn;
    };
    create(params_.flash_attn != 0);
    const bool lacks_kernel = ctx_ && cp.offload_kqv && !access_attends_on_devices(ctx_.get());
    if (chooses && (!ctx_ || lacks_kernel)) {
        create(false);
    }
    if (!ctx_ && lacks_kernel && chooses) {   // its scores take more memory than there is: rather slow than not at all
        create(true);
    }
}

void target::create_context() {
    const bool           recurrent = models_.recurrent();
    const bool           tapes     = recurrent && access_has_tapes(models_.target());
    llama_context_params cp        = context_params(params_, models_.target(), limits_);
    cp.n_seq_max                   = params_.n_slots + (params_.kv_unified && !recurrent);   // one for padding rows
    cp.n_rs_seq                    = recurrent && !tapes ? (uint32_t) wanted_snapshots() : 0;
    cp.abort_callback              = [](void * t) { return ((target *) t)->interrupted_.load(); };
    cp.abort_callback_data         = this;
    create_with_attention(cp);
    if (!ctx_) {
        throw status_error(DFLASH_ERROR_MEMORY, "no context for ", cp.n_ctx,
            " tokens could be created: ", logged_error(), " (lower -c or -np, or use -ctk/-ctv q8_0)");
    }
    access_limit_sequences(ctx_.get(), (uint32_t) limits_.n_ctx_slot);
    access_order_cells(ctx_.get());
    access_send_little(ctx_.get());
    batch_.init(ctx_.get());
    memory_ = std::make_unique<dflash::memory>(ctx_.get(), tapes, models_.rpc());
    // a model without attention has states only
    if (params_.kv_unified && !llama_model_is_recurrent(model())) {
        limits_.n_cells = (int32_t) params_.n_ctx;
    }
}

void target::create_logit_store() {
    const ggml_backend_dev_t device = access_head_device(model());
    if (device && logit_store::can_find(device, n_vocab())) {
        logits_ = std::make_unique<logit_store>(n_vocab());
        access_set_logit_store(ctx_.get(), logits_.get());
    }
}

// What the memory can roll back: trees, chains, or nothing.
void target::set_tree_support() {
    const bool tapes     = memory_->tapes();
    limits_.splits_trees = memory_->recurrent() || !params_.kv_unified;
    if (tapes && (models_.drafts() || params_.lookup)) {
        memory_->need_tapes(params_.budget > 1 ? params_.budget : TAPE_ROWS);
    }
    if (tapes) {
        limits_.equal_trees = true;
        limits_.n_nodes     = memory_->tape_rows();
        if (limits_.n_nodes == 0) {
            no_draft_ = NO_SOURCE;
        }
    } else if (memory_->recurrent()) {
        limits_.n_quote_max = (int32_t) llama_n_rs_seq(ctx_.get());   // as far as the state goes back
        if (limits_.n_quote_max == 0 || limits_.n_quote_max < limits_.n_draft_max) {
            const bool able = !models_.drafts() && !params_.lookup && access_snapshot_bytes(models_.target()) > 0;
            no_draft_ =
                able ? NO_SOURCE : "the architecture " + access_arch(model()) + " cannot roll its recurrent state back";
        }
    }
}

bool target::pads_passes() const {
    return logits_ && access_on_devices(model()) && memory_->no_tree().empty() &&
           (!memory_->recurrent() || memory_->tapes());
}

size_t target::output_bytes() const {
    size_t floats = (size_t) limits_.n_outputs * n_vocab();
    if (!taps_) {
        floats += tapped_layers_.size() * llama_model_n_embd(model()) * llama_n_batch(ctx_.get());
    }
    if (taps_final_state_) {
        floats += (size_t) llama_model_n_embd_out(model()) * llama_n_batch(ctx_.get());
    }
    return floats * sizeof(float);
}

void target::reserve_outputs() {
    if (!access_reserve_outputs(ctx_.get(), limits_.n_outputs)) {
        throw status_error(DFLASH_ERROR_MEMORY, "no memory for the logits of a pass: lower -np");
    }
}

// ---- taps ----

tap_store * target::create_tap_store(const drafter_model & drafter) {
    const ggml_backend_dev_t device = tap_store::device_for(model(), drafter.target_layers, drafter.fc);
    if (!device) {
        return nullptr;
    }
    const int32_t n_rows = limits_.n_rows + (int32_t) params_.n_slots * MAX_STORED_TAPS;
    try {
        taps_ = std::make_unique<tap_store>(device, drafter.target_layers, drafter.n_embd, n_rows);
    } catch (const std::runtime_error & e) {
        throw status_error(DFLASH_ERROR_MEMORY, e.what());
    }
    access_set_tap_store(ctx_.get(), taps_.get());
    return taps_.get();
}

void target::set_tapped_layers(const std::vector<int32_t> & layers) {
    tapped_layers_ = layers;
    for (const int32_t layer : layers) {
        llama_set_embeddings_layer_inp(ctx_.get(), (uint32_t) layer, true);
    }
}

void target::tap_final_state() {
    taps_final_state_ = true;
    llama_set_embeddings_nextn(ctx_.get(), true, false);
    // A plan of the memory from before would let other tensors overwrite the states; setting a tap makes a new one.
    const bool is_tapped = std::count(tapped_layers_.begin(), tapped_layers_.end(), 0) > 0;
    llama_set_embeddings_layer_inp(ctx_.get(), 0, is_tapped);
}

void target::read_taps(int32_t row, int32_t n, float * out) const {
    const size_t n_embd = llama_model_n_embd(model()), row_size = tapped_layers_.size() * n_embd;
    for (size_t k = 0; k < tapped_layers_.size(); ++k) {
        const float * rows = llama_get_embeddings_layer_inp(ctx_.get(), tapped_layers_[k]);
        for (int32_t i = 0; i < n; ++i) {
            std::memcpy(out + i * row_size + k * n_embd, rows + (size_t) (row + i) * n_embd, n_embd * sizeof(float));
        }
    }
}

void target::read_final_state(int32_t row, int32_t n, float * out) const {
    const size_t n_embd = llama_model_n_embd_out(model());
    std::memcpy(out, llama_get_embeddings_nextn(ctx_.get()) + row * n_embd, n * n_embd * sizeof(float));
}

void target::end_pass() {
    if (taps_) {
        taps_->set_pass({});
    }
}

// ---- a pass ----

bool target::opens(const tree & t, bool rolls_back, int32_t padded_size) const {
    return !t.is_chain() || padded_size > t.size() || (memory_->tapes() && rolls_back);
}

int target::process() {
    end_pass();
    if (taps_) {
        taps_->set_pass(taps_->take(batch_.n_rows() - batch_.n_padding()));
    }
    fail_if(is_broken_, "a pass of the target broke off before: load the model again");
    const abort_guard guard(abort_guard::phase::pass);
    const log_silence silence("non-consecutive token position");   // so is M-RoPE behind an image
    const int32_t     n_reused = llama_perf_context(ctx_.get()).n_reused;
    is_broken_                 = true;   // where it throws, the context has half a graph (abort_guard)
    const int rc               = llama_process(ctx_.get(), LLAMA_PROCESS_TYPE_DECODE, batch_.get());
    is_broken_                 = false;
    llama_synchronize(ctx_.get());
    models_.rpc().raise_failures();   // before its results are read
    reused_graph_ = llama_perf_context(ctx_.get()).n_reused > n_reused;
    if (batch_.n_padding() > 0) {
        memory_->forget(batch_.padding_seq());
    }
    return rc;
}

void target::process(const char * what) {
    if (const int rc = process()) {
        throw status_error(DFLASH_ERROR_COMPUTE, what, ": a target pass failed (code ", rc, ")");
    }
}

}   // namespace dflash
