// Loading a pair, measuring what passes cost on this machine, and what the engine tells about itself.

#include "engine/engine.h"

#include "common/chat.h"
#include "common/common.h"
#include "files/gguf_check.h"
#include "base/abort_guard.h"
#include "base/log.h"
#include "llama-ext.h"
#include "llama/tree.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <thread>

namespace dflash {

using json = nlohmann::ordered_json;

void llama_deleter::operator()(common_chat_templates * t) const { common_chat_templates_free(t); }

namespace {

constexpr int32_t PAD_CELLS = 4;
constexpr int32_t TAPE_ROWS =
    32;   // nodes of a recurrent target's tree: what rolls it back is 1/40 of a state for each
constexpr int32_t DEFAULT_CTX = 16384;   // of a slot: a 256k model must not fill the memory unasked

ggml_type cache_type(const char * name, const char * field, bool drafter) {
    const std::string n = name && *name ? name : "f16";
    for (const ggml_type t : { GGML_TYPE_F16, GGML_TYPE_F32, GGML_TYPE_BF16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0,
             GGML_TYPE_Q4_1, GGML_TYPE_IQ4_NL, GGML_TYPE_Q5_0, GGML_TYPE_Q5_1 }) {
        if (n == ggml_type_name(t) && (!drafter || t == GGML_TYPE_F16 || t == GGML_TYPE_F32)) {
            return t;
        }
    }
    throw status_error(
        DFLASH_ERROR_ARG, std::string(field) + " is '" + n + "', must be " +
                              (drafter ? "f16 or f32" : "one of f16, f32, bf16, q8_0, q4_0, q4_1, iq4_nl, q5_0, q5_1"));
}

void check_range(const char * field, int64_t value, int64_t lo, int64_t hi) {
    if (value < lo || value > hi) {
        throw status_error(DFLASH_ERROR_ARG, std::string(field) + " is " + std::to_string(value) + ", must be " +
                                                 std::to_string(lo) + ".." + std::to_string(hi));
    }
}

std::vector<float> parse_split(const char * text) {
    std::vector<float> split(llama_max_devices(), 0.0f);
    std::stringstream  in(text ? text : "");
    std::string        part;
    for (size_t i = 0; std::getline(in, part, ','); ++i) {
        char *      end = nullptr;
        const float f   = std::strtof(part.c_str(), &end);
        if (i >= split.size() || part.empty() || *end || !(f >= 0) || !std::isfinite(f)) {
            throw status_error(DFLASH_ERROR_ARG, std::string("tensor_split is '") + text + "', must be at most " +
                                                     std::to_string(split.size()) + " numbers such as 3,1");
        }
        split[i] = f;
    }
    return split;
}

// What goes wrong with a loaded drafter is about the pair.
template <class F> auto pair_error(F && f) {
    try {
        return f();
    } catch (const std::runtime_error & e) {
        throw status_error(DFLASH_ERROR_PAIR, e.what());
    }
}

struct progress_state {
    dflash_progress_callback f;
    void *                   user;
    float                    from, share;
    bool                     cancelled;
};

bool on_progress(float p, void * user) {
    auto * s     = (progress_state *) user;
    s->cancelled = s->f && !s->f(s->from + s->share * p, s->user);
    return !s->cancelled;
}

llama_model * load_model(const char * path, const char * what, int32_t n_gpu_layers, const dflash_engine_params & p,
    const std::vector<float> & split, progress_state progress) {
    std::string why;
    if (!gguf_check(path, why)) {
        throw status_error(DFLASH_ERROR_MODEL, why);
    }
    logged_error();   // forget what went wrong before
    llama_model_params mp          = llama_model_default_params();
    mp.n_gpu_layers                = n_gpu_layers;
    mp.main_gpu                    = p.main_gpu;
    mp.tensor_split                = p.tensor_split ? split.data() : nullptr;
    mp.load_mode                   = p.use_mlock  ? (p.use_mmap ? LLAMA_LOAD_MODE_MMAP_MLOCK : LLAMA_LOAD_MODE_MLOCK)
                                     : p.use_mmap ? LLAMA_LOAD_MODE_MMAP
                                                  : LLAMA_LOAD_MODE_NONE;
    mp.progress_callback           = on_progress;
    mp.progress_callback_user_data = &progress;
    if (p.split_mode && *p.split_mode) {
        const std::string m = p.split_mode;
        mp.split_mode       = m == "none"    ? LLAMA_SPLIT_MODE_NONE
                              : m == "layer" ? LLAMA_SPLIT_MODE_LAYER
                              : m == "row"   ? LLAMA_SPLIT_MODE_ROW
                                             : throw status_error(
                                           DFLASH_ERROR_ARG, "split_mode is '" + m + "', must be none, layer or row");
    }
    llama_model * model = llama_model_load_from_file(path, mp);
    if (!model) {
        if (progress.cancelled) {
            throw status_error(DFLASH_ERROR_ARG, std::string("loading the ") + what + " was cancelled");
        }
        throw status_error(
            DFLASH_ERROR_MODEL, std::string("the ") + what + " " + path + " could not be loaded: " + logged_error());
    }
    return model;
}

}   // namespace

engine::engine(const dflash_engine_params & p, dflash_progress_callback progress, void * user) {
    {
        const abort_guard guard(abort_guard::phase::load);
        load(p, progress, user);
    }
    measure_costs(p.warmup);
}

engine::~engine() {
    if (n_steps_ > 0) {
        write_costs();   // what passes cost in use
    }
}

void engine::load(const dflash_engine_params & p, dflash_progress_callback progress, void * user) {
    if (!p.model || !*p.model) {
        throw status_error(DFLASH_ERROR_ARG, "model is empty: give the path of a target GGUF");
    }
    check_range("n_slots", p.n_slots, 1, 64);
    check_range("n_batch", p.n_batch, 64, 1 << 20);
    check_range("n_ubatch", p.n_ubatch, 64, 1 << 20);
    check_range("budget", p.budget, 0, DFLASH_MAX_NODES);
    check_range("draft_n_max", p.draft_n_max, 0, DFLASH_MAX_NODES - 1);
    check_range("draft", p.draft, DFLASH_DRAFT_OFF, DFLASH_DRAFT_TREE);
    check_range("accept", p.accept, DFLASH_ACCEPT_MATCH, DFLASH_ACCEPT_BLOCK);
    check_range("n_ctx", p.n_ctx, 0, 1 << 30);
    check_range("flash_attn", p.flash_attn, -1, 1);
    const ggml_type type_k = cache_type(p.type_k, "type_k", false), type_v = cache_type(p.type_v, "type_v", false);
    const ggml_type type_k_draft             = cache_type(p.type_k_draft, "type_k_draft", true),
                    type_v_draft             = cache_type(p.type_v_draft, "type_v_draft", true);
    const std::vector<float> split           = parse_split(p.tensor_split);
    const bool               has_drafter     = p.drafter && *p.drafter;
    const int32_t            n_threads       = p.n_threads > 0 ? p.n_threads : common_cpu_get_num_math();
    const int32_t            n_threads_batch = p.n_threads_batch > 0 ? p.n_threads_batch : n_threads;
    check_range("n_threads", n_threads, 1, GGML_MAX_N_THREADS);
    check_range("n_threads_batch", n_threads_batch, 1, GGML_MAX_N_THREADS);

    model_.reset(load_model(
        p.model, "target", p.n_gpu_layers, p, split, { progress, user, 0.0f, has_drafter ? 0.8f : 1.0f, false }));
    if (!llama_model_has_decoder(model_.get()) || llama_model_has_encoder(model_.get())) {
        throw status_error(DFLASH_ERROR_MODEL, std::string(p.model) +
                                                   " is not a text-generation model (general.architecture " +
                                                   access_arch(model_.get()) + ")");
    }
    const int32_t n_vocab = llama_vocab_n_tokens(vocab());
    if (n_vocab < 1) {
        throw status_error(DFLASH_ERROR_MODEL, std::string(p.model) + " has no vocabulary (tokenizer.ggml.tokens)");
    }
    if (has_drafter) {
        draft_model_.reset(
            load_model(p.drafter, "drafter", p.n_gpu_layers_draft, p, split, { progress, user, 0.8f, 0.2f, false }));
    }
    const int32_t block = has_drafter ? pair_error([&] { return access_drafter(draft_model_.get()).block_size; }) : 1;

    const int32_t n_train = llama_model_n_ctx_train(model_.get());
    n_ctx_slot_           = p.n_ctx ? (int32_t) (p.n_ctx / p.n_slots) : std::min(n_train, DEFAULT_CTX);
    check_range("n_ctx per slot", n_ctx_slot_, 8, 1 << 30);
    n_rows_max_ = (int32_t) std::min({ p.n_batch, p.n_ubatch, (uint32_t) n_ctx_slot_ * p.n_slots });
    if ((int32_t) p.n_slots > n_rows_max_) {
        throw status_error(DFLASH_ERROR_ARG, "n_slots is " + std::to_string(p.n_slots) +
                                                 ", more than rows fit one pass (" + std::to_string(n_rows_max_) + ")");
    }
    n_outputs_max_ = std::min<int32_t>(
        n_rows_max_, std::max<int32_t>(DFLASH_MAX_NODES, (int32_t) p.n_slots * block) + (int32_t) p.n_slots);
    draft_n_max_ = p.draft_n_max ? std::min(p.draft_n_max, block - 1) : block - 1;
    budget_      = p.budget;
    draft_mode_  = p.draft;
    accept_      = p.accept;
    lookup_      = p.lookup;
    unified_     = p.kv_unified;
    cost_cache_  = p.cost_cache ? p.cost_cache : "";

    const bool recurrent     = is_recurrent();
    tapes_                   = recurrent && access_has_tapes(model_.get());
    llama_context_params cp  = llama_context_default_params();
    cp.n_ctx                 = (uint32_t) n_ctx_slot_ * p.n_slots + (unified_ ? PAD_CELLS : 0);
    cp.n_batch               = std::max<uint32_t>(p.n_batch, (uint32_t) n_rows_max_);
    cp.n_ubatch              = p.n_ubatch;
    cp.n_seq_max             = p.n_slots + (unified_ && !recurrent);   // one for padding rows
    cp.n_rs_seq              = recurrent && has_drafter && !tapes_ ? (uint32_t) draft_n_max_ : 0;
    cp.n_outputs_max         = (uint32_t) n_outputs_max_;
    cp.n_outputs_max_per_seq = 0;
    cp.n_threads             = n_threads;
    cp.n_threads_batch       = n_threads_batch;
    char pooling[8];
    if (llama_model_meta_val_str(
            model_.get(), (access_arch(model_.get()) + ".pooling_type").c_str(), pooling, sizeof(pooling)) >= 0) {
        cp.pooling_type = LLAMA_POOLING_TYPE_NONE;   // a text model all the same; otherwise it is the default, and to
                                                     // say so logs a warning
    }
    cp.type_k              = type_k;
    cp.type_v              = type_v;
    cp.swa_full            = p.swa_full;
    cp.kv_unified          = unified_;   // one stream: rows of all slots share one pass, whatever their number
    cp.no_perf             = false;
    cp.abort_callback      = [](void * e) { return ((engine *) e)->interrupted_.load(); };
    cp.abort_callback_data = this;
    // `auto` is resolved after the cache's layout is fixed, which can leave V transposed for nothing: decide here.
    bool flash_attn    = p.flash_attn != 0;
    cp.flash_attn_type = flash_attn ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    ctx_.reset(llama_init_from_model(model_.get(), cp));
    if (!ctx_ && p.flash_attn < 0 && !ggml_is_quantized(type_v)) {
        flash_attn         = false;
        cp.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
        ctx_.reset(llama_init_from_model(model_.get(), cp));
    }
    if (!ctx_) {
        throw status_error(DFLASH_ERROR_MEMORY, "no context for " + std::to_string(cp.n_ctx) +
                                                    " tokens could be created: " + logged_error() +
                                                    " (lower -c or -np, or use -ctk/-ctv q8_0)");
    }
    access_order_cells(ctx_.get());
    batch_.reset(llama_batch_ext_init(ctx_.get()));
    if (tapes_ && has_drafter) {
        need_tapes(p.budget > 1 ? (int32_t) p.budget : TAPE_ROWS);
    }
    if (!tapes_ && !llama_memory_can_tree(llama_get_memory(ctx_.get()))) {
        no_tree_ = "the memory of the architecture " + access_arch(model_.get()) + " holds " +
                   (recurrent ? "one state per sequence" : "data derived from positions") +
                   ": it cannot keep siblings apart";
    }

    if (has_drafter) {
        if (recurrent && !tapes_ && (int32_t) llama_n_rs_seq(ctx_.get()) < draft_n_max_) {
            no_draft_ = "the architecture " + access_arch(model_.get()) + " cannot roll its recurrent state back";
        }
        drafter_params dp;
        dp.n_slots = (int32_t) p.n_slots;
        dp.n_ctx   = (int32_t) std::min<uint32_t>(p.draft_ctx ? p.draft_ctx : 4096, (uint32_t) n_ctx_slot_);
        check_range("draft_ctx", dp.n_ctx, 1, 1 << 24);
        dp.n_batch    = std::max(n_rows_max_, 64);
        dp.n_threads  = n_threads_batch;
        dp.flash_attn = flash_attn && type_k_draft == GGML_TYPE_F16 && type_v_draft == GGML_TYPE_F16;
        dp.type_k     = type_k_draft;
        dp.type_v     = type_v_draft;
        drafter_      = pair_error([&] { return std::make_unique<drafter>(draft_model_.get(), model_.get(), dp); });
        if (accept_ == DFLASH_ACCEPT_BLOCK && !drafter_->lattice()) {
            throw status_error(DFLASH_ERROR_ARG,
                "accept is block, which needs a DFlash 2 drafter: only its lattice has joint probabilities");
        }
        for (const int32_t layer : drafter_->weights().target_layers) {
            llama_set_embeddings_layer_inp(ctx_.get(), (uint32_t) layer, true);
        }
    }

    try {
        templates_.reset(common_chat_templates_init(model_.get(), "").release());
    } catch (const std::exception &) {
        templates_.reset(common_chat_templates_init(model_.get(), "chatml")
                .release());   // a broken template must not cost the model
    }
    slots_.resize(p.n_slots);
    for (size_t i = 0; i < slots_.size(); ++i) {
        slots_[i].id = (int32_t) i;
    }
}

// One pass of each model, so that a file whose graph cannot be built fails here and not under a request. With `all`,
// pass times by width too. Passes are timed as steps run them, target and drafter in turns: each finds the caches full
// of the other's weights, which costs a tenth and more.
void engine::measure_costs(bool all) {
    constexpr int64_t limit_us = 2'000'000;
    const int64_t     t_begin  = llama_time_us();
    const llama_token bos      = llama_vocab_bos(vocab());
    const int32_t     token    = bos >= 0 ? bos : 0;
    const int32_t     block    = drafter_ ? drafter_->block_size() : 1;
    slot &            s        = slots_[0];
    const auto        pass     = [&](int32_t rows) {
        llama_batch_ext_clear(batch_.get());
        n_rows_ = 0;
        for (int32_t i = 0; i < rows; ++i) {
            add_row(s, token, i, true);
        }
        if (tape_rows_ > 0 && rows > 1) {
            llama_batch_ext_set_parent(batch_.get(), 0, LLAMA_PARENT_NONE);
        }
        const int64_t t = llama_time_us();
        process_or_throw("warm-up");
        const double ms = (llama_time_us() - t) / 1000.0;
        llama_memory_clear(llama_get_memory(ctx_.get()), false);
        return ms;
    };
    const std::vector<float> taps(drafter_ ? (size_t) block * drafter_->tap_width() : 0);
    std::vector<draft>       drafts;
    const auto               draft_pass = [&](int32_t n_slots, int32_t length) {
        std::vector<draft_job> jobs;
        for (int32_t i = 0; i < n_slots; ++i) {
            jobs.push_back({ i, taps.data(), std::min(4, length), 0, true, token });
        }
        const int64_t t = llama_time_us();
        drafter_->run(jobs, length, drafts);
        const double ms = (llama_time_us() - t) / 1000.0;
        for (int32_t i = 0; i < n_slots; ++i) {
            drafter_->rewind(i, 0);
        }
        return ms;
    };
    const auto late = [&](int64_t limit) { return llama_time_us() - t_begin > limit; };

    const int32_t widest = std::min({ n_outputs_max_, n_ctx_slot_,
        tape_rows_ > 0 ? tape_rows_
        : drafter_     ? DFLASH_MAX_NODES
                       : std::max(16, (int32_t) slots_.size()) });
    pass(std::min(2, widest));   // first touch of the weights
    if (drafter_) {
        draft_pass(1, std::min(block, std::max(2, draft_n_max_ + 1)));
    }
    if (all && !read_costs()) {
        cost_source_ = "measured";
        rebuild_ms_  = INFINITY;   // the least that a new graph cost is the least noisy
        for (int32_t n_slots = 1; drafter_ && n_slots <= (int32_t) slots_.size(); n_slots *= 2) {
            for (const int32_t length : { 16, 8, 4, 32, 64 }) {
                const int32_t len = std::min(length, block);
                if (draft_cost_.points().count(n_slots * len) || (n_slots > 1 && late(limit_us / 2))) {
                    continue;
                }
                draft_pass(n_slots, len);
                pass(std::min(8, widest));
                double best = draft_pass(n_slots, len);
                pass(std::min(8, widest));
                draft_cost_.set(n_slots * len, std::min(best, draft_pass(n_slots, len)));
            }
        }
        std::vector<int32_t> widths = { 1, 2, 4, 8, 16, 3, 6, 12, 32, 64, 24,
            48 };   // the most telling first: slow machines get no further
        for (int32_t rows = 5; rows <= 64; ++rows) {
            if (rows < 16 || rows % 4 == 0) {
                widths.push_back(rows);
            }
        }
        for (const int32_t rows : widths) {
            if (rows > widest || verify_cost_.points().count(rows)) {
                continue;
            }
            if (rows > 2 && late(limit_us)) {
                break;
            }
            const auto again = [&] {
                if (rows > 1 && drafter_) {   // one row is plain decoding: the drafter rests
                    draft_pass(1, std::min(8, block));
                }
                return pass(rows);
            };
            const double first = pass(rows), best = std::min(again(), again());
            verify_cost_.set(rows, best);
            if (rows == 1) {
                rebuild_ms_ = std::min(rebuild_ms_, std::max(0.0, first - best));
            }
        }
        rebuild_ms_ = std::isfinite(rebuild_ms_) ? rebuild_ms_ : 0;
        write_costs();
    }
    // A recurrent target would keep a whole state for the padding rows.
    if (unified_ && verify_cost_.points().count(15) && verify_cost_.at(15) > 1.05 * verify_cost_.at(16) &&
        !is_recurrent()) {
        pad_seq_ = (int32_t) slots_.size();
    }
    llama_memory_clear(llama_get_memory(ctx_.get()), true);
    for (slot & other : slots_) {
        forget(other);
    }
    s.n_rows = 0;
}

// ---- pass times on disk ----

namespace {

constexpr int32_t COST_FORMAT = 2;

json curve_json(const cost_curve & c) {
    json j = json::object();
    for (const auto & [rows, ms] : c.points()) {
        j[std::to_string(rows)] = ms;
    }
    return j;
}

bool read_curve(const json & j, cost_curve & c) {
    if (!j.is_object()) {
        return false;
    }
    for (const auto & [key, value] : j.items()) {
        const long   rows = std::strtol(key.c_str(), nullptr, 10);
        const double ms   = value.is_number() ? value.get<double>() : -1;
        if (rows < 1 || rows > (1 << 20) || !(ms > 0) || !(ms < 1e9)) {
            return false;
        }
        c.set((int32_t) rows, ms);
    }
    return true;
}

}   // namespace

// A file that cannot be read, or says something impossible, is as good as none.
bool engine::read_costs() {
    std::ifstream in(cost_cache_);
    if (cost_cache_.empty() || !in) {
        return false;
    }
    const json j = json::parse(in, nullptr, false);
    cost_curve verify, draft;
    if (!j.is_object() || j.value("format", json()) != json(COST_FORMAT) ||
        !read_curve(j.value("verify_ms", json()), verify) || !read_curve(j.value("draft_ms", json()), draft) ||
        !j.value("rebuild_ms", json()).is_number() || !j.value("cell_ms", json()).is_number() || verify.empty() ||
        draft.empty() != !drafter_) {
        return false;
    }
    verify_cost_ = verify;
    draft_cost_  = draft;
    rebuild_ms_  = std::clamp(j["rebuild_ms"].get<double>(), 0.0, 1e6);
    verify_cost_.set_per_cell(std::clamp(j["cell_ms"].get<double>(), 0.0, 1e3));
    cost_source_ = "cache";
    return true;
}

// Best effort: a full disk costs nothing but the next start's measurement.
void engine::write_costs() const {
    if (cost_cache_.empty() || verify_cost_.empty() || cost_source_ == "none") {
        return;
    }
    const json        j    = { { "format", COST_FORMAT }, { "verify_ms", curve_json(verify_cost_) },
                  { "draft_ms", curve_json(draft_cost_) }, { "rebuild_ms", rebuild_ms_ },
                  { "cell_ms", verify_cost_.per_cell() } };
    const std::string part = cost_cache_ + "." + std::to_string(llama_time_us()) + ".part";
    {
        std::ofstream out(part);
        out << j.dump(1) << "\n";
        if (!out) {
            std::remove(part.c_str());
            return;
        }
    }
#ifdef _WIN32
    std::remove(cost_cache_.c_str());   // rename() does not replace there
#endif
    if (std::rename(part.c_str(), cost_cache_.c_str()) != 0) {
        std::remove(part.c_str());
    }
}

// ---- what the engine tells ----

namespace {

json describe(const llama_model * m) {
    char desc[256] = {};
    llama_model_desc(m, desc, sizeof(desc));
    return {
        { "arch", access_arch(m) },
        { "description", desc },
        { "n_params", llama_model_n_params(m) },
        { "size", llama_model_size(m) },
        { "n_vocab", llama_vocab_n_tokens(llama_model_get_vocab(m)) },
        { "n_embd", llama_model_n_embd(m) },
        { "n_layer", llama_model_n_layer(m) },
        { "n_ctx_train", llama_model_n_ctx_train(m) },
    };
}

template <class Map> json counts_json(const Map & counts) {
    json j = json::object();
    for (const auto & [key, n] : counts) {
        if constexpr (std::is_arithmetic_v<std::decay_t<decltype(key)>>) {
            j[std::to_string(key)] = n;
        } else {
            j[key] = n;
        }
    }
    return j;
}

}   // namespace

std::string engine::info() const {
    size_t context = 0, compute = 0;
    for (const auto & [type, data] : llama_get_memory_breakdown(ctx_.get())) {
        context += data.context;
        compute += data.compute;
    }
    json j = {
        { "target", describe(model_.get()) },
        { "drafter", nullptr },
        { "n_ctx_slot", n_ctx_slot_ },
        { "n_slots", slots_.size() },
        { "n_rows_max", n_rows_max_ },
        { "bos_token", llama_vocab_bos(vocab()) },
        { "eos_token", llama_vocab_eos(vocab()) },
        { "add_bos", llama_vocab_get_add_bos(vocab()) },
        { "no_tree", no_tree_ },
        { "kv_unified", unified_ },
        { "not_bit_exact", access_row_variance(ctx_.get()) },
        { "chat_template", common_chat_templates_source(templates_.get()) },
        { "memory", { { "target", llama_model_size(model_.get()) }, { "context", context }, { "compute", compute } } },
    };
    if (is_recurrent()) {
        const state_bytes bytes   = access_state_bytes(ctx_.get());
        j["memory"]["slot_state"] = bytes.state;
        j["memory"]["slot_tape"]  = bytes.tape;
        j["tape_rows"]            = tape_rows_;
    }
    if (drafter_) {
        json d                         = describe(draft_model_.get());
        d["kind"]                      = drafter_->lattice() ? "dflash2" : "dflash";
        d["block_size"]                = drafter_->block_size();
        d["top_k"]                     = drafter_->top_k();
        d["target_layers"]             = drafter_->weights().target_layers;
        d["mask_token"]                = llama_vocab_mask(llama_model_get_vocab(draft_model_.get()));
        d["draft_ctx"]                 = drafter_->n_ctx();
        d["no_draft"]                  = no_draft_;
        j["drafter"]                   = d;
        j["memory"]["drafter"]         = llama_model_size(draft_model_.get());
        j["memory"]["drafter_context"] = drafter_->memory_bytes();
    }
    return j.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string engine::stats() const {
    const llama_perf_context_data perf = llama_perf_context(ctx_.get());
    const json                    j    = {
        { "steps", n_steps_ },
        { "passes", n_passes_ },
        { "rows", n_row_total_ },
        { "tokens", n_generated_ },
        { "t_plan_ms", times_.plan },
        { "t_verify_ms", times_.verify },
        { "t_walk_ms", times_.walk },
        { "t_commit_ms", times_.commit },
        { "t_draft_ms", times_.draft },
        { "t_grow_ms", times_.grow },
        { "t_step_ms", times_.step },
        { "t_other_ms", std::max(0.0, times_.step - times_.plan - times_.verify - times_.walk - times_.commit -
                                                                times_.draft - times_.grow) },
        { "graphs_reused_target", perf.n_reused },
        { "graphs_built_target", std::max<int64_t>(0, n_passes_ - perf.n_reused) },
        { "graphs_built_drafter", drafter_ ? drafter_->n_graphs_built : 0 },
        { "graphs_reused_drafter", drafter_ ? drafter_->n_graphs_reused : 0 },
        { "cost_verify_ms", curve_json(verify_cost_) },
        { "cost_draft_ms", curve_json(draft_cost_) },
        { "cost_other_ms", other_ms_ },
        { "cost_rebuild_ms", rebuild_ms_ },
        { "cost_cell_ms", verify_cost_.per_cell() },
        { "cost_source", cost_source_ },
        { "kv_packs", access_packs(ctx_.get()) },
        { "choices", { { "nodes", counts_json(chosen_nodes_) }, { "lengths", counts_json(chosen_lengths_) },
                                               { "reasons", counts_json(chosen_reasons_) } } },
        { "lookup", { { "drafted", n_quoted_ }, { "accepted", n_quoted_accepted_ } } },
        { "drafter_failure", last_failure_ },
        { "choice", { { "length", last_choice_.length }, { "rate", last_choice_.rate }, { "plain_rate", plain_rate(1) },
                                              { "drafted_rate", switch_.rate() }, { "resting", switch_.resting() }, { "reason", reason_ } } },
    };
    return j.dump();
}

}   // namespace dflash
