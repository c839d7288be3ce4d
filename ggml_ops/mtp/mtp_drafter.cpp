#include "mtp/mtp_drafter.h"

#include "base/abort_guard.h"
#include "base/error.h"
#include "base/log.h"
#include "llama/access.h"
#include "llama/cache_access.h"
#include "llama/mtp_layers.h"
#include "target/cache_type.h"

#include "llama-ext.h"

#include <algorithm>
#include <cmath>

namespace dflash {

// ---- construction ----

// Cells for the drafts of each slot beside its text, up to the length that the model was trained with; where slots
// share them, whose texts may fill the target's, all of these.
static uint32_t n_cells(const llama_model * model, const dflash_engine_params & p) {
    const uint32_t n_drafted = GGML_PAD((uint32_t) access_mtp_length(model), 256);
    const uint32_t n_seqs = p.kv_unified ? 1 : p.n_slots, n_seq = p.n_ctx / n_seqs;
    const uint32_t wanted = n_seq + n_drafted * p.n_slots / n_seqs;
    if (p.kv_unified && p.n_slots > 1) {
        return wanted;
    }
    return std::max(n_seq, std::min(wanted, (uint32_t) llama_model_n_ctx_train(model))) * n_seqs;
}

static llama_context_ptr make_context(llama_model * model, const target & target) {
    const dflash_engine_params & p  = target.params();
    llama_context_params         cp = llama_context_default_params();
    cp.ctx_type                     = LLAMA_CONTEXT_TYPE_MTP;
    cp.ctx_other                    = target.context();
    const bool shares               = access_is_assistant(model);
    cp.n_ctx                        = shares ? llama_n_ctx(target.context()) : n_cells(model, p);
    cp.n_batch = cp.n_ubatch = (uint32_t) std::max(target.limits().n_rows, 64);
    cp.n_outputs_max         = p.n_slots;
    cp.n_seq_max             = p.n_slots;
    cp.n_threads = cp.n_threads_batch = p.n_threads_batch;
    cp.type_k                         = cache_type(p.type_k_draft, "type_k_draft", true);
    cp.type_v                         = cache_type(p.type_v_draft, "type_v_draft", true);
    cp.flash_attn_type                = p.flash_attn ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    cp.swa_full                       = p.swa_full;
    cp.offload_kqv                    = p.kv_offload;
    cp.kv_unified                     = p.kv_unified;
    cp.no_perf                        = false;
    const log_silence silence;   // it warns that an assistant shares its target's cache
    llama_context_ptr ctx(llama_init_from_model(model, cp));
    if (!ctx) {
        throw status_error(DFLASH_ERROR_MEMORY, "no context for the MTP layers: ", logged_error(),
            " (lower -c or -np, or leave them out: --draft-kind lookup)");
    }
    if (shares) {
        access_add_view(target.context());
    }
    return ctx;
}

static std::unique_ptr<mtp_head> make_head(const model_pair & models, const dflash_engine_params & p) {
    const mtp_projection projection = access_mtp_projection(models.mtp());
    if (!projection.head) {
        return nullptr;
    }
    const whole_head whole = { projection.head, models.mtp_head(), (int32_t) projection.head->ne[1],
        projection.beside };
    const int32_t    n     = head_part::size(whole, p.draft_vocab);
    return n == 0 ? nullptr
                  : std::make_unique<mtp_head>(
                        std::make_unique<head_part>(whole, n, models.vocab()), (int32_t) p.n_threads_batch);
}

mtp_drafter::mtp_drafter(const model_pair & models, dflash::target & target) :
    n_embd_(llama_model_n_embd_out(models.mtp())), n_vocab_(llama_vocab_n_tokens(llama_model_get_vocab(models.mtp()))),
    max_length_(access_mtp_length(models.mtp())), n_heads_(access_mtp_heads(models.mtp())),
    on_device_(access_on_devices(models.mtp())), crops_(access_mtp_crops(models.mtp())),
    context_(make_context(models.mtp(), target), models.rpc(), (int32_t) target.params().n_slots, n_embd_,
        access_is_assistant(models.mtp())),
    batch_(llama_batch_ext_init(context_.ctx())), head_(make_head(models, target.params())) {
    const llama_model * of_target = target.model();
    fail_if(n_embd_ != llama_model_n_embd_out(of_target), "the MTP layers' hidden states have ", n_embd_,
        " numbers, the target's ", llama_model_n_embd_out(of_target), ": use the layers of this target");
    fail_if(n_vocab_ != target.n_vocab(), "the MTP layers' vocabulary has ", n_vocab_, " tokens, the target's ",
        target.n_vocab(), ": use the layers of this target");
    target.tap_final_state();
}

drafter_layers mtp_drafter::layers() const { return { llama_get_model(context_.ctx()), max_length_, n_logits() }; }

std::map<ggml_backend_buffer_type_t, size_t> mtp_drafter::compute_memory() const {
    std::map<ggml_backend_buffer_type_t, size_t> bytes;
    for (const auto & [type, data] : llama_get_memory_breakdown(context_.ctx())) {
        bytes[type] += data.compute;
    }
    return bytes;
}

std::map<ggml_backend_buffer_type_t, size_t> mtp_drafter::copied_memory() const {
    return head_ ? head_->part().memory() : std::map<ggml_backend_buffer_type_t, size_t>{};
}

void mtp_drafter::count_text(const std::vector<int32_t> & tokens, size_t first) {
    if (head_) {
        head_->part().count_text(tokens, first);
    }
}

void mtp_drafter::follow_texts() {
    if (head_) {
        head_->part().follow_texts();
    }
}

// ---- one draft ----

void mtp_drafter::run(const std::vector<draft_job> & jobs, int32_t length, std::vector<draft> & drafts) {
    const abort_guard guard(abort_guard::phase::pass);
    drafts.assign(jobs.size(), {});
    rows_.clear();
    paths_.clear();
    for (size_t i = 0; i < jobs.size(); ++i) {
        start(jobs[i], drafts[i]);
    }
    compute({ 0, n_heads_ - 1, false });
    for (const draft_job & job : jobs) {
        if (job.n_inject > 0) {
            context_.advance(job.slot, job.n_inject, job.taps + (size_t) (job.n_inject - 1) * n_embd_);
        }
    }
    for (int32_t depth = 2; depth < length; ++depth) {
        rows_.clear();
        for (size_t i = 0; i < paths_.size(); ++i) {
            const path & p = paths_[i];
            if ((int32_t) p.tokens.size() == depth && p.value >= p.least && p.pos + depth < n_ctx()) {
                add_rows((int32_t) i);
            }
        }
        if (rows_.empty()) {
            break;
        }
        const int32_t head = n_heads_ > 1 ? depth - 1 : 0;
        compute({ head, head, true });
    }
    for (const path & p : paths_) {   // the next pass computes what is accepted of it with the target's hidden states
        context_.cut_rows(p.slot, p.pos);
    }
}

// Rows of the text, each with the tap of the position before, unless the target has them, and a path from the anchor.
// Rows of media, which are no tokens, have their taps and some token's embedding.
void mtp_drafter::start(const draft_job & job, draft & drafted) {
    if (job.pos != context_.end(job.slot)) {
        context_.rewind(job.slot, job.pos);
    }
    fail_if(job.n_inject > 0 && !job.tokens, "MTP layers read taps with their tokens, and there are none");
    const auto before = [&](int32_t i) {
        return i > 0 ? job.taps + (size_t) (i - 1) * n_embd_ : context_.newest(job.slot);
    };
    for (int32_t i = 0; i < job.n_inject && !context_.shares(); ++i) {
        rows_.push_back({ job.slot, std::max(0, job.tokens[i]), job.pos + i, before(i), -1 });
    }
    if (job.denoise) {
        const float * newest = before(job.n_inject);
        const int32_t pos    = job.pos + job.n_inject;
        rows_.push_back({ job.slot, job.anchor, pos, newest, (int32_t) paths_.size() });
        paths_.push_back({ job.slot, pos, &drafted, job.whole ? 0.0f : LEAST_VALUE, 1, { job.anchor },
            { newest, newest + n_embd_ } });
        drafted.top_k         = std::min(TOP_K, n_logits());
        drafted.follows_first = true;
    }
}

// A path's last token; where each position has a head of its own, which knows nothing of the others' rows, the tokens
// before it, too.
void mtp_drafter::add_rows(int32_t i_path) {
    const path &  p = paths_[i_path];
    const int32_t n = (int32_t) p.tokens.size();
    for (int32_t i = n_heads_ > 1 ? 0 : n - 1; i < n; ++i) {
        const float * state = p.states.data() + (size_t) i * n_embd_;
        const int32_t pos   = context_.shares() ? p.pos : p.pos + i;
        rows_.push_back({ p.slot, p.tokens[i], pos, state, i == n - 1 ? i_path : -1 });
    }
}

// Computes rows_, and lets the paths go on.
void mtp_drafter::compute(head_range heads) {
    const auto n_rows = (int32_t) rows_.size(), n_most = (int32_t) llama_n_batch(context_.ctx());
    for (int32_t from = 0; from < n_rows; from += n_most) {
        for (int32_t head = heads.first; head <= heads.last; ++head) {
            compute_chunk(rows_.data() + from, std::min(n_most, n_rows - from), head, heads);
        }
    }
}

void mtp_drafter::compute_chunk(const row * chunk, int32_t n, int32_t head, head_range heads) {
    llama_context * ctx     = context_.ctx();
    const bool      outputs = head == heads.first;
    // llama.cpp would take the first rows' states for those of the rows with logits, where the graph has all
    const bool proposes = outputs && std::any_of(chunk, chunk + n, [](const row & r) { return r.path >= 0; });
    llama_set_embeddings_nextn(ctx, true, crops_ || !proposes);
    llama_batch_ext_clear(batch_.get());
    for (int32_t i = 0; i < n; ++i) {
        const row & r = chunk[i];
        if (head > 0 && (i == 0 || chunk[i - 1].slot != r.slot)) {   // another head's rows are there
            context_.cut_rows(r.slot, r.pos);
        }
        const int32_t at = llama_batch_ext_add_token(batch_.get(), r.slot, r.token);
        fail_if(at != i || !llama_batch_ext_set_pos(batch_.get(), at, &r.pos) ||
                    !llama_batch_ext_set_embd_token(batch_.get(), at, { r.state, 1, (size_t) n_embd_ }) ||
                    !llama_batch_ext_set_output_logits(batch_.get(), at, proposes && !head_ && r.path >= 0),
            "row ", i, " of an MTP pass was refused by the batch");
    }
    if (n_heads_ > 1) {
        llama_set_nextn_layer_offset(ctx, head);
    }
    if (process(heads.drafts_only) && proposes) {
        propose_all(chunk, n);
    }
}

// Computes the batch. False: the cache is full, and no row of the text is lost: these are rows of drafts, or an
// assistant's, which looks for free cells of the target's cache, though it leaves nothing there.
bool mtp_drafter::process(bool drafts_only) {
    constexpr int NO_CELLS = 1;
    fail_if(is_broken_, "a pass of the MTP layers broke off before: load the model again");
    const log_silence silence;   // it warns of this
    llama_context *   ctx      = context_.ctx();
    const int32_t     n_reused = llama_perf_context(ctx).n_reused;
    is_broken_                 = true;   // where it throws, the context has half a graph (abort_guard)
    const int rc               = llama_process(ctx, LLAMA_PROCESS_TYPE_DECODE, batch_.get());
    is_broken_                 = false;
    if (rc == NO_CELLS && (drafts_only || context_.shares())) {
        return false;
    }
    fail_if(rc != 0, "a pass of the MTP layers failed (code ", rc, ")");
    llama_synchronize(ctx);
    const bool reused = llama_perf_context(ctx).n_reused > n_reused;
    n_graphs_reused += reused;
    n_graphs_built += !reused;
    return true;
}

// The candidates of the chunk's rows that paths go on behind.
void mtp_drafter::propose_all(const row * chunk, int32_t n) {
    std::vector<int32_t> rows;
    std::vector<float>   states;
    for (int32_t i = 0; i < n; ++i) {
        if (chunk[i].path >= 0) {
            const float * state = llama_get_embeddings_nextn_ith(context_.ctx(), i);
            fail_if(!state, "a pass of the MTP layers left no hidden state");
            rows.push_back(i);
            states.insert(states.end(), state, state + n_embd_);
        }
    }
    const float * logits = head_ ? head_->compute(states, (int32_t) rows.size()) : nullptr;
    for (size_t k = 0; k < rows.size(); ++k) {
        const float * row = head_ ? logits + k * n_logits() : llama_get_logits_ith(context_.ctx(), rows[k]);
        fail_if(!row, "a pass of the MTP layers left no logits");
        propose(paths_[chunk[rows[k]].path], row, states.data() + k * n_embd_);
    }
}

// Adds a row's candidates to the path's draft; the path goes on with the likeliest.
void mtp_drafter::propose(path & p, const float * logits, const float * state) {
    draft & drafted = *p.drafted;
    logits_.scan(logits, n_logits());
    logits_.largest(drafted.top_k, best_);
    const double sum = logits_.log_sum_exp();
    for (const llama_token_data & candidate : best_) {
        drafted.ids.push_back(head_ ? head_->part().tokens()[candidate.id] : candidate.id);
        drafted.probs.push_back((float) std::exp(candidate.logit - sum));
    }
    drafted.length = (int32_t) p.tokens.size() + 1;
    p.value *= drafted.row(drafted.positions(), 0)[0];
    p.tokens.push_back(drafted.id(drafted.positions(), 0));
    p.states.insert(p.states.end(), state, state + n_embd_);
}

}   // namespace dflash
