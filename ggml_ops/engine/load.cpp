// Loading a pair: check the parameters, load the models, size the passes, create the contexts, warm up.

#include "engine/engine.h"

#include "accept/sampling.h"
#include "base/abort_guard.h"
#include "base/log.h"
#include "base/stopwatch.h"
#include "common/chat.h"
#include "common/common.h"
#include "engine/cache_type.h"
#include "files/chat_template.h"
#include "files/gguf_check.h"
#include "llama/access.h"
#include "llama/cache_access.h"
#include "llama/embedding_rows.h"
#include "llama/llama_tree.h"
#include "plan/planned_buffer.h"

#include "llama-ext.h"

#include <algorithm>

namespace dflash {

void engine::templates_deleter::operator()(common_chat_templates * t) const { common_chat_templates_free(t); }

namespace {

constexpr int32_t TAPE_ROWS         = 32;   // nodes of a recurrent target's tree; each costs 1/40 of a state
constexpr int32_t MIN_ROWS          = 64;   // of a pass: trees have so many
constexpr int32_t DEFAULT_DRAFT_CTX = 4096;
constexpr int32_t MAX_LAYERS        = 1 << 10;

// What goes wrong with a loaded drafter is about the pair.
template <class F> auto pair_error(F && f) {
    try {
        return f();
    } catch (const std::runtime_error & e) {
        throw status_error(DFLASH_ERROR_PAIR, e.what());
    }
}

// The progress of one file as a part of the whole load.
struct load_progress {
    dflash_progress_callback f;
    void *                   user;
    float                    from, share;
    bool                     cancelled;
};

bool on_progress(float p, void * user) {
    auto * s     = (load_progress *) user;
    s->cancelled = s->f && !s->f(s->from + s->share * p, s->user);
    return !s->cancelled;
}

llama_load_mode load_mode(const dflash_engine_params & p) {
    if (p.use_mlock) {
        return p.use_mmap ? LLAMA_LOAD_MODE_MMAP_MLOCK : LLAMA_LOAD_MODE_MLOCK;
    }
    return p.use_mmap ? LLAMA_LOAD_MODE_MMAP : LLAMA_LOAD_MODE_NONE;
}

llama_model * load_model(const char * path, const char * what, const placement & placed, const dflash_engine_params & p,
    bool plans, load_progress progress) {
    std::string why;
    if (!gguf_check(path, why)) {
        throw status_error(DFLASH_ERROR_MODEL, why);
    }
    logged_error();   // forget what went wrong before
    llama_model_params mp          = llama_model_default_params();
    mp.no_alloc                    = plans;
    mp.load_mode                   = plans ? LLAMA_LOAD_MODE_NONE : load_mode(p);
    mp.progress_callback           = on_progress;
    mp.progress_callback_user_data = &progress;
    placed.apply(mp);
    llama_model * model = llama_model_load_from_file(path, mp);
    if (!model && progress.cancelled) {
        throw status_error(DFLASH_ERROR_ARG, std::string("loading the ") + what + " was cancelled");
    }
    if (!model) {
        throw status_error(
            DFLASH_ERROR_MODEL, std::string("the ") + what + " " + path + " could not be loaded: " + logged_error());
    }
    return model;
}

}   // namespace

engine::engine(const dflash_engine_params & params, dflash_progress_callback progress, void * user) : params_(params) {
    {
        const abort_guard guard(abort_guard::phase::load);
        raise_rpc_failures([&] { load(progress, user); });
    }
    raise_rpc_failures([&] { warm_up(); });
}

engine::engine(const dflash_engine_params & params, const std::vector<ggml_backend_dev_t> & stand_ins) :
    params_(params), plans_(true), stand_ins_(stand_ins) {
    const abort_guard guard(abort_guard::phase::load);
    raise_rpc_failures([&] {
        load(nullptr, nullptr);
        access_reserve(ctx_.get());
        reserve_passes();
    });
}

std::string engine::allocations(
    const dflash_engine_params & params, const std::vector<ggml_backend_dev_t> & stand_ins) {
    const log_silence silence;
    const plan_scope  scope;
    return engine(params, stand_ins).planned();
}

engine::~engine() {
    if (totals_.n_steps > 0) {
        controller_.costs().write(cost_cache_);   // what passes cost in use
    }
}

void engine::load(dflash_progress_callback progress, void * user) {
    resolve_params();
    rpc_.connect();
    place_models();
    load_models(progress, user);
    set_limits();
    if (plans_) {
        access_plan_contexts(model_.get());
    }
    create_context();
    create_logit_store();
    set_tree_support();
    create_drafter();
    if (plans_) {
        return;
    }
    if (on_devices()) {
        reserve_passes();
    }
    pad_passes();
    load_templates();
    host_ = host_cache(host_cache_limit());
    slots_.resize(params_.n_slots);
    for (size_t i = 0; i < slots_.size(); ++i) {
        slots_[i].id = (int32_t) i;
    }
}

bool engine::is_recurrent() const {
    return llama_model_is_recurrent(model_.get()) || llama_model_is_hybrid(model_.get());
}

// Everything that can be refused before a file is opened.
void engine::resolve_params() {
    dflash_engine_params & p = params_;
    if (!is_set(p.model)) {
        throw status_error(DFLASH_ERROR_ARG, "model is empty: give the path of a target GGUF");
    }
    check_range("n_slots", p.n_slots, 1, 64);
    check_range("n_batch", p.n_batch, 1, 1 << 20);
    check_range("n_ubatch", p.n_ubatch, 1, 1 << 20);
    check_range("budget", p.budget, 0, DFLASH_MAX_NODES);
    check_range("draft_n_max", p.draft_n_max, 0, DFLASH_MAX_NODES - 1);
    check_range("draft", p.draft, DFLASH_DRAFT_OFF, DFLASH_DRAFT_TREE);
    check_range("accept", p.accept, DFLASH_ACCEPT_MATCH, DFLASH_ACCEPT_BLOCK);
    check_range("n_ctx", p.n_ctx, 0, 1 << 30);
    check_range("n_ctx_slot", p.n_ctx_slot, 0, 1 << 30);
    check_range("flash_attn", p.flash_attn, -1, 1);
    check_range("cache_ram", p.cache_ram, -2, 1 << 30);
    check_range("n_checkpoints", p.n_checkpoints, 0, 1 << 10);
    check_range("checkpoint_step", p.checkpoint_step, 0, 1 << 30);
    if (!(p.slot_similarity >= 0 && p.slot_similarity <= 1)) {
        throw status_error(
            DFLASH_ERROR_ARG, "slot_similarity is " + std::to_string(p.slot_similarity) + ", must be 0..1");
    }
    if (p.share_ctx && !p.kv_unified) {
        throw status_error(DFLASH_ERROR_ARG, "share_ctx needs kv_unified: slots with a cache each cannot share one");
    }
    cache_type(p.type_k, "type_k", false);
    if (ggml_is_quantized(cache_type(p.type_v, "type_v", false)) && p.flash_attn == 0) {
        throw status_error(
            DFLASH_ERROR_ARG, std::string("type_v is '") + p.type_v +
                                  "', which needs flash attention: leave flash_attn on or auto, or quantize K alone");
    }
    cache_type(p.type_k_draft, "type_k_draft", true);
    cache_type(p.type_v_draft, "type_v_draft", true);
    check_range("n_cpu_moe", p.n_cpu_moe, 0, MAX_LAYERS);
    check_range("n_cpu_ffn", p.n_cpu_ffn, 0, MAX_LAYERS);
    rpc_              = rpc_servers(p.rpc);
    p.n_threads       = p.n_threads > 0 ? p.n_threads : common_cpu_get_num_math();
    p.n_threads_batch = p.n_threads_batch > 0 ? p.n_threads_batch : p.n_threads;
    check_range("n_threads", p.n_threads, 1, GGML_MAX_N_THREADS);
    check_range("n_threads_batch", p.n_threads_batch, 1, GGML_MAX_N_THREADS);
    cost_cache_   = p.cost_cache ? p.cost_cache : "";
    model_path_   = p.model;
    drafter_path_ = is_set(p.drafter) ? p.drafter : "";
    if (is_set(p.chat_template)) {
        check_chat_template(p.chat_template);
    }
}

// Devices have names once the RPC servers are known.
void engine::place_models() {
    std::vector<ggml_backend_dev_t> known = !stand_ins_.empty() ? stand_ins_
                                            : rpc_.none()       ? local_devices()
                                                                : rpc_.devices();
    known.erase(std::remove(known.begin(), known.end(), nullptr), known.end());
    target_place_  = placement::of_target(params_, known);
    drafter_place_ = placement::of_drafter(params_, known);
    if (!stand_ins_.empty()) {
        known.push_back(nullptr);
        target_place_.prefer(known);
        drafter_place_.prefer(known);
        return;
    }
    target_place_.prefer(rpc_.devices());
    drafter_place_.prefer(rpc_servers().devices());   // not on servers of another engine
    if (!rpc_.none()) {                               // a drafter pass over the network would cost more than it saves
        drafter_place_.stay_on(rpc_servers().devices());
    }
}

void engine::load_models(dflash_progress_callback progress, void * user) {
    const dflash_engine_params & p            = params_;
    const float                  target_share = is_set(p.drafter) ? 0.8f : 1.0f;
    model_.reset(
        load_model(p.model, "target", target_place_, p, plans_, { progress, user, 0.0f, target_share, false }));
    rpc_.raise_failures();
    weights_ = access_weights(model_.get());
    if (!llama_model_has_decoder(model_.get()) || llama_model_has_encoder(model_.get())) {
        throw status_error(DFLASH_ERROR_MODEL, std::string(p.model) +
                                                   " is not a text-generation model (general.architecture " +
                                                   access_arch(model_.get()) + ")");
    }
    if (llama_vocab_n_tokens(vocab()) < 1) {
        throw status_error(DFLASH_ERROR_MODEL, std::string(p.model) + " has no vocabulary (tokenizer.ggml.tokens)");
    }
    if (is_recurrent() && target_place_.splits_tensors_over_rpc()) {
        throw status_error(DFLASH_ERROR_ARG, "split_mode tensor: RPC servers cannot hold the recurrent states of " +
                                                 access_arch(model_.get()) + " in parts; use layer");
    }
    if (is_set(p.drafter)) {
        drafter_place_.settle(target_place_, model_.get());
        draft_model_.reset(load_model(p.drafter, "drafter", drafter_place_, p, plans_,
            { progress, user, target_share, 1 - target_share, false }));
        draft_weights_     = access_weights(draft_model_.get());
        limits_.max_length = pair_error([&] { return access_drafter(draft_model_.get()).max_length(); });
    }
}

void engine::set_limits() {
    if (params_.flash_attn != 0 && access_needs_streams(model_.get())) {   // a cache and a share of the context each
        params_.kv_unified = params_.share_ctx = false;
    }
    const dflash_engine_params & p       = params_;
    const int32_t                n_slots = (int32_t) p.n_slots, block = std::max(1, limits_.max_length);
    set_context_size();
    const uint32_t n_prompt_rows = std::min(p.n_batch, p.n_ubatch);
    limits_.n_prompt_rows        = (int32_t) n_prompt_rows;
    limits_.n_rows               = (int32_t) std::min(std::max<uint32_t>(n_prompt_rows, MIN_ROWS), params_.n_ctx);
    if (n_slots > limits_.n_rows) {
        throw status_error(DFLASH_ERROR_ARG, "n_slots is " + std::to_string(n_slots) +
                                                 ", more than rows fit one pass (" + std::to_string(limits_.n_rows) +
                                                 ")");
    }
    limits_.n_outputs   = std::min(limits_.n_rows, std::max(DFLASH_MAX_NODES, n_slots * block) + n_slots);
    limits_.n_draft_max = p.draft_n_max ? std::min(p.draft_n_max, block - 1) : block - 1;
    limits_.n_quote_max = p.draft_n_max ? p.draft_n_max : DFLASH_MAX_NODES - 1;
}

// ---- the target's context ----

void engine::create_context() {
    const dflash_engine_params & p         = params_;
    const bool                   recurrent = is_recurrent();
    tapes_                                 = recurrent && access_has_tapes(model_.get());
    llama_context_params cp                = llama_context_default_params();
    cp.n_ctx                               = p.n_ctx;
    cp.n_batch                             = std::max<uint32_t>(p.n_batch, (uint32_t) limits_.n_rows);
    cp.n_ubatch                            = std::max<uint32_t>(p.n_ubatch, MIN_ROWS);
    cp.n_seq_max                           = p.n_slots + (p.kv_unified && !recurrent);   // one for padding rows
    cp.n_rs_seq                            = recurrent && draft_model_ && !tapes_ ? (uint32_t) limits_.n_draft_max : 0;
    cp.n_outputs_max                       = (uint32_t) limits_.n_outputs;
    cp.n_outputs_max_per_seq               = 0;
    cp.n_threads                           = p.n_threads;
    cp.n_threads_batch                     = p.n_threads_batch;
    cp.type_k                              = cache_type(p.type_k, "type_k", false);
    cp.type_v                              = cache_type(p.type_v, "type_v", false);
    cp.swa_full                            = p.swa_full;
    cp.offload_kqv                         = p.kv_offload;
    cp.kv_unified          = p.kv_unified;   // one stream: rows of all slots share one pass, whatever their number
    cp.no_perf             = false;
    cp.abort_callback      = [](void * e) { return ((engine *) e)->interrupted_.load(); };
    cp.abort_callback_data = this;
    const std::string pooling_key = access_arch(model_.get()) + ".pooling_type";
    char              pooling[8];
    if (llama_model_meta_val_str(model_.get(), pooling_key.c_str(), pooling, sizeof(pooling)) >= 0) {
        // It is a text model all the same. Without the key this is the default, and to set it logs a warning.
        cp.pooling_type = LLAMA_POOLING_TYPE_NONE;
    }
    // llama.cpp resolves `auto` after the cache's layout is fixed, which can leave V transposed for nothing: decide
    // here.
    const int32_t wanted = p.flash_attn;
    const auto    create = [&](bool flash_attn) {
        cp.flash_attn_type = flash_attn ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
        ctx_.reset(llama_init_from_model(model_.get(), cp));
        params_.flash_attn = flash_attn;
    };
    create(wanted != 0);
    if (!ctx_ && wanted < 0 && !ggml_is_quantized(cp.type_v)) {
        create(false);
    }
    if (!ctx_) {
        throw status_error(DFLASH_ERROR_MEMORY, "no context for " + std::to_string(cp.n_ctx) +
                                                    " tokens could be created: " + logged_error() +
                                                    " (lower -c or -np, or use -ctk/-ctv q8_0)");
    }
    access_limit_sequences(ctx_.get(), (uint32_t) limits_.n_ctx_slot);
    access_order_cells(ctx_.get());
    access_send_little(ctx_.get());
    batch_.init(ctx_.get());
    // a model without attention has states only
    limits_.n_cells = p.kv_unified && !llama_model_is_recurrent(model_.get()) ? (int32_t) p.n_ctx : 0;
    checkpoints_    = recurrent || llama_model_n_swa(model_.get()) > 0;
    drops_          = recurrent || access_drops_cells(ctx_.get());
    idle_costs_     = p.kv_unified && !access_on_host(ctx_.get());
}

void engine::create_logit_store() {
    const ggml_backend_dev_t device  = access_head_device(model_.get());
    const int32_t            n_vocab = llama_vocab_n_tokens(vocab());
    if (device && logit_store::can_find(device, n_vocab)) {
        logit_store_ = std::make_unique<logit_store>(n_vocab);
        access_set_logit_store(ctx_.get(), logit_store_.get());
    }
}

// Graphs are used again where all of the target is on devices and its memory takes padded trees.
void engine::pad_passes() {
    const bool pads =
        logit_store_ && access_on_devices(model_.get()) && no_tree_.empty() && (!is_recurrent() || tapes_);
    controller_.costs().verify.set_padded(pads);
    batch_.set_padding_outputs(pads);
    limits_.pads_blocks = drafter_ && drafter_->on_device();
}

// What the target's memory can roll back: trees, chains, or nothing.
void engine::set_tree_support() {
    if (tapes_ && draft_model_) {
        need_tapes(params_.budget > 1 ? params_.budget : TAPE_ROWS);
    }
    if (is_recurrent() && !tapes_) {
        limits_.n_quote_max = limits_.n_draft_max;   // as far as the state goes back
    }
    if (tapes_) {
        limits_.equal_trees = true;
        limits_.n_nodes     = tape_rows_;
    } else if (!llama_memory_can_tree(llama_get_memory(ctx_.get()))) {
        no_tree_ = "the memory of the architecture " + access_arch(model_.get()) + " holds " +
                   (is_recurrent() ? "one state per sequence" : "data derived from positions") +
                   ": it cannot keep siblings apart";
    }
    if (draft_model_ && is_recurrent() && !tapes_ && (int32_t) llama_n_rs_seq(ctx_.get()) < limits_.n_draft_max) {
        no_draft_ = "the architecture " + access_arch(model_.get()) + " cannot roll its recurrent state back";
    }
}

// Memory for what a recurrent target needs to roll back trees of at most n_nodes nodes.
void engine::need_tapes(int32_t n_nodes) {
    if (tape_rows_ > 0) {
        return;
    }
    if (!llama_memory_set_tree_capacity(llama_get_memory(ctx_.get()), n_nodes)) {
        throw status_error(
            DFLASH_ERROR_MEMORY, "no memory for trees of " + std::to_string(n_nodes) + " nodes: " + logged_error());
    }
    tape_rows_ = n_nodes;
}

// ---- the drafter, the chat templates ----

void engine::create_drafter() {
    const dflash_engine_params & p = params_;
    if (!draft_model_) {
        if (p.accept == DFLASH_ACCEPT_BLOCK) {
            require_lattice(nullptr);
        }
        return;
    }
    drafter_params dp;
    dp.n_slots = (int32_t) p.n_slots;
    dp.n_ctx   = (int32_t) std::min<uint32_t>(p.draft_ctx ? p.draft_ctx : DEFAULT_DRAFT_CTX, limits_.n_ctx_slot);
    check_range("draft_ctx", dp.n_ctx, 1, 1 << 24);
    dp.n_batch       = std::max(limits_.n_rows, 64);
    dp.n_threads     = p.n_threads_batch;
    dp.type_k        = cache_type(p.type_k_draft, "type_k_draft", true);
    dp.type_v        = cache_type(p.type_v_draft, "type_v_draft", true);
    dp.kv_offload    = p.kv_offload;
    dp.flash_attn    = p.flash_attn && dp.type_k == GGML_TYPE_F16 && dp.type_v == GGML_TYPE_F16;
    dp.history_limit = history_limit();
    create_tap_store();
    dp.taps  = tap_store_.get();
    drafter_ = pair_error([&] { return std::make_unique<drafter>(draft_model_.get(), model_.get(), dp); });
    if (p.accept == DFLASH_ACCEPT_BLOCK) {
        require_lattice(drafter_.get());
    }
    for (const int32_t layer : drafter_->model().target_layers) {
        llama_set_embeddings_layer_inp(ctx_.get(), (uint32_t) layer, true);
    }
}

// Whether anything of the drafter's passes is computed on a device.
bool engine::on_devices() const {
    return draft_model_ && !(access_devices(model_.get()).empty() && access_devices(draft_model_.get()).empty());
}

// The memory of all passes to come, so that none fails for want of it. On the host it is taken when it is used.
void engine::reserve_passes() {
    if (!drafter_) {
        return;
    }
    try {
        drafter_->reserve();
    } catch (const std::runtime_error & e) {
        throw status_error(DFLASH_ERROR_MEMORY, e.what());
    }
}

// Bytes on the host for what the largest pass of the target gives out.
size_t engine::output_bytes() const {
    size_t floats = (size_t) limits_.n_outputs * llama_vocab_n_tokens(vocab());
    if (drafter_ && !tap_store_) {
        floats += drafter_->model().target_layers.size() * llama_model_n_embd(model_.get()) * llama_n_batch(ctx_.get());
    }
    return floats * sizeof(float);
}

// Memory for taps where target and drafter compute; without it they go over the host.
void engine::create_tap_store() {
    const drafter_model      model  = pair_error([&] { return access_drafter(draft_model_.get()); });
    const ggml_backend_dev_t device = tap_store::device_for(model_.get(), model.target_layers, model.fc);
    if (!device) {
        return;
    }
    const int32_t n_rows = limits_.n_rows + (int32_t) params_.n_slots * MAX_STORED_TAPS;
    try {
        tap_store_ = std::make_unique<tap_store>(device, model.target_layers, model.n_embd, n_rows);
    } catch (const std::runtime_error & e) {
        throw status_error(DFLASH_ERROR_MEMORY, e.what());
    }
    access_set_tap_store(ctx_.get(), tap_store_.get());
}

void engine::load_templates() {
    if (is_set(params_.chat_template)) {
        templates_.reset(common_chat_templates_init(model_.get(), params_.chat_template).release());
        return;
    }
    try {
        templates_.reset(common_chat_templates_init(model_.get(), "").release());
    } catch (const std::exception &) {   // a broken template must not cost the model
        templates_.reset(common_chat_templates_init(model_.get(), "chatml").release());
    }
}

// ---- the first passes ----

// One pass of each model, so that a file whose graph cannot be built fails here and not under a request; with `warmup`
// pass times too, if they are not known from an earlier start.
void engine::warm_up() {
    const stopwatch since_start;
    timed_passes    passes;
    passes.verify = [this](int32_t n_rows) { return time_verify(n_rows); };
    if (drafter_) {
        passes.draft = [this](int32_t n_slots, int32_t length) { return time_draft(n_slots, length); };
    }
    pass_shapes shapes;
    shapes.n_slots    = (int32_t) slots_.size();
    shapes.max_length = std::max(1, limits_.max_length);
    shapes.n_rows_max = std::min({ limits_.n_outputs, limits_.n_ctx_slot,
        tape_rows_ > 0   ? tape_rows_
        : is_recurrent() ? std::max(16, shapes.n_slots)
                         : DFLASH_MAX_NODES });

    if (logit_store_) {   // as greedy passes do; a pass on an RPC server is over when something of it has been read
        logit_store_->wanted = best_logits::largest;
    }
    passes.verify(std::min(2, shapes.n_rows_max));   // first touch of the weights
    if (drafter_) {
        passes.draft(1, std::min(limits_.max_length, std::max(2, limits_.n_draft_max + 1)));
    }
    pass_costs & costs = controller_.costs();
    if (params_.warmup && !costs.read(cost_cache_, drafter_ != nullptr)) {
        costs.measure(passes, shapes, since_start);
        costs.write(cost_cache_);
    }
    // A recurrent target would keep a whole state for the padding rows.
    if (params_.kv_unified && !is_recurrent() && !costs.verify.padded() && costs.padding_pays()) {
        batch_.set_padding_seq((int32_t) slots_.size());
    }
    llama_memory_clear(llama_get_memory(ctx_.get()), true);
    for (slot & s : slots_) {
        forget(s);
    }
}

// Milliseconds of a target pass over n_rows rows of the first slot.
double engine::time_verify(int32_t n_rows) {
    const int32_t token = std::max(0, llama_vocab_bos(vocab()));
    batch_.clear();
    for (int32_t i = 0; i < n_rows; ++i) {
        batch_.add_row(0, token, i, true);
    }
    if (tape_rows_ > 0 && n_rows > 1) {
        batch_.set_root(0);
    }
    const stopwatch watch;
    process_or_throw("warm-up");
    const double ms = watch.ms();
    llama_memory_clear(llama_get_memory(ctx_.get()), false);
    return ms;
}

// Milliseconds of a drafter pass that injects a few rows and denoises `length` tokens for each of n_slots slots.
double engine::time_draft(int32_t n_slots, int32_t length) {
    const int32_t               token = std::max(0, llama_vocab_bos(vocab())), n_inject = std::min(4, length);
    const std::vector<float>    taps((size_t) n_inject * drafter_->tap_width());
    const std::vector<tap_cell> cells(n_inject, std::make_shared<const int32_t>(tap_store::ZEROS));
    std::vector<draft_job>      jobs;
    for (int32_t i = 0; i < n_slots; ++i) {
        jobs.push_back({ i, taps.data(), n_inject, 0, true, token, cells.data() });
    }
    std::vector<dflash::draft> drafts;
    const stopwatch            watch;
    drafter_->run(jobs, length, drafts);
    const double ms = watch.ms();
    for (int32_t i = 0; i < n_slots; ++i) {
        drafter_->rewind(i, 0);
    }
    return ms;
}

}   // namespace dflash
