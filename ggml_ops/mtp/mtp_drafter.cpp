#include "mtp/mtp_drafter.h"

#include "base/abort_guard.h"
#include "base/error.h"
#include "base/log.h"
#include "llama/access.h"
#include "llama/mtp_layers.h"
#include "target/cache_type.h"

#include "llama-ext.h"

#include <algorithm>
#include <cmath>

namespace dflash {

// ---- construction ----

static llama_context_ptr make_context(llama_model * model, const target & target) {
    const dflash_engine_params & p         = target.params();
    const uint32_t               n_drafted = p.n_slots * (uint32_t) access_mtp_length(model);
    llama_context_params         cp        = llama_context_default_params();
    cp.ctx_type                            = LLAMA_CONTEXT_TYPE_MTP;
    cp.ctx_other                           = target.context();
    cp.n_ctx                               = p.n_ctx + GGML_PAD(n_drafted, 256);
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
    llama_context_ptr ctx(llama_init_from_model(model, cp));
    if (!ctx) {
        throw status_error(DFLASH_ERROR_MEMORY, "no context for the MTP layers: ", logged_error(),
            " (lower -c or -np, or leave them out: --draft-kind lookup)");
    }
    return ctx;
}

mtp_drafter::mtp_drafter(llama_model * model, dflash::target & target, const rpc_servers & rpc) :
    n_embd_(llama_model_n_embd_out(model)), n_vocab_(llama_vocab_n_tokens(llama_model_get_vocab(model))),
    n_heads_(access_mtp_heads(model)), on_device_(access_on_devices(model)),
    context_(make_context(model, target), rpc, (int32_t) target.params().n_slots, n_embd_),
    batch_(llama_batch_ext_init(context_.ctx())) {
    const llama_model * of_target = target.model();
    fail_if(n_embd_ != llama_model_n_embd_out(of_target), "the MTP layers' hidden states have ", n_embd_,
        " numbers, the target's ", llama_model_n_embd_out(of_target), ": use the layers of this target");
    fail_if(n_vocab_ != target.n_vocab(), "the MTP layers' vocabulary has ", n_vocab_, " tokens, the target's ",
        target.n_vocab(), ": use the layers of this target");
    target.tap_final_state();
    llama_set_embeddings_nextn(context_.ctx(), true, true);
}

std::map<ggml_backend_buffer_type_t, size_t> mtp_drafter::compute_memory() const {
    std::map<ggml_backend_buffer_type_t, size_t> bytes;
    for (const auto & [type, data] : llama_get_memory_breakdown(context_.ctx())) {
        bytes[type] += data.compute;
    }
    return bytes;
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
    compute({ 0, n_heads_ - 1 });
    for (const draft_job & job : jobs) {
        if (job.n_inject > 0) {
            context_.advance(job.slot, job.n_inject, job.taps + (size_t) (job.n_inject - 1) * n_embd_);
        }
    }
    for (int32_t depth = 2; depth < length; ++depth) {
        rows_.clear();
        for (size_t i = 0; i < paths_.size(); ++i) {
            if ((int32_t) paths_[i].tokens.size() == depth && paths_[i].value >= paths_[i].least) {
                add_rows((int32_t) i);
            }
        }
        if (rows_.empty()) {
            break;
        }
        const int32_t head = n_heads_ > 1 ? depth - 1 : 0;
        compute({ head, head });
    }
    for (const path & p : paths_) {   // the next pass computes what is accepted of it with the target's hidden states
        context_.cut_rows(p.slot, p.pos);
    }
}

// Rows of the text, each with the tap of the position before, and a path from the anchor.
void mtp_drafter::start(const draft_job & job, draft & drafted) {
    if (job.pos != context_.end(job.slot)) {
        context_.rewind(job.slot, job.pos);
    }
    const auto before = [&](int32_t i) {
        return i > 0 ? job.taps + (size_t) (i - 1) * n_embd_ : context_.newest(job.slot);
    };
    for (int32_t i = 0; i < job.n_inject; ++i) {
        rows_.push_back({ job.slot, job.tokens[i], job.pos + i, before(i), -1 });
    }
    if (job.denoise) {
        const float * newest = before(job.n_inject);
        const int32_t pos    = job.pos + job.n_inject;
        rows_.push_back({ job.slot, job.anchor, pos, newest, (int32_t) paths_.size() });
        paths_.push_back({ job.slot, pos, &drafted, job.whole ? 0.0f : LEAST_VALUE, 1, { job.anchor },
            { newest, newest + n_embd_ } });
        drafted.top_k         = std::min(TOP_K, n_vocab_);
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
        rows_.push_back({ p.slot, p.tokens[i], p.pos + i, state, i == n - 1 ? i_path : -1 });
    }
}

// Computes rows_, and lets the paths go on.
void mtp_drafter::compute(head_range heads) {
    const auto n_rows = (int32_t) rows_.size(), n_most = (int32_t) llama_n_batch(context_.ctx());
    for (int32_t from = 0; from < n_rows; from += n_most) {
        for (int32_t head = heads.first; head <= heads.last; ++head) {
            compute_chunk(rows_.data() + from, std::min(n_most, n_rows - from), head, head == heads.first);
        }
    }
}

void mtp_drafter::compute_chunk(const row * chunk, int32_t n, int32_t head, bool outputs) {
    llama_context * ctx = context_.ctx();
    llama_batch_ext_clear(batch_.get());
    for (int32_t i = 0; i < n; ++i) {
        const row & r = chunk[i];
        if (head > 0 && (i == 0 || chunk[i - 1].slot != r.slot)) {   // another head's rows are there
            context_.cut_rows(r.slot, r.pos);
        }
        const int32_t at = llama_batch_ext_add_token(batch_.get(), r.slot, r.token);
        fail_if(at != i || !llama_batch_ext_set_pos(batch_.get(), at, &r.pos) ||
                    !llama_batch_ext_set_embd_token(batch_.get(), at, { r.state, 1, (size_t) n_embd_ }) ||
                    !llama_batch_ext_set_output_logits(batch_.get(), at, outputs && r.path >= 0),
            "row ", i, " of an MTP pass was refused by the batch");
    }
    if (n_heads_ > 1) {
        llama_set_nextn_layer_offset(ctx, head);
    }
    const int32_t n_reused = llama_perf_context(ctx).n_reused;
    const int     rc       = llama_process(ctx, LLAMA_PROCESS_TYPE_DECODE, batch_.get());
    fail_if(rc != 0, "a pass of the MTP layers failed (code ", rc, ")");
    llama_synchronize(ctx);
    const bool reused = llama_perf_context(ctx).n_reused > n_reused;
    n_graphs_reused += reused;
    n_graphs_built += !reused;
    for (int32_t i = 0; i < n && outputs; ++i) {
        if (chunk[i].path >= 0) {
            propose(i, paths_[chunk[i].path]);
        }
    }
}

// Adds a row's candidates to the path's draft; the path goes on with the likeliest.
void mtp_drafter::propose(int32_t i_row, path & p) {
    const float * logits = llama_get_logits_ith(context_.ctx(), i_row);
    const float * state  = llama_get_embeddings_nextn_ith(context_.ctx(), i_row);
    fail_if(!logits || !state, "a pass of the MTP layers left no output");
    draft & drafted = *p.drafted;
    logits_.scan(logits, n_vocab_);
    logits_.largest(drafted.top_k, best_);
    const double sum = logits_.log_sum_exp();
    for (const llama_token_data & candidate : best_) {
        drafted.ids.push_back(candidate.id);
        drafted.probs.push_back((float) std::exp(candidate.logit - sum));
    }
    drafted.length = (int32_t) p.tokens.size() + 1;
    p.value *= drafted.row(drafted.positions(), 0)[0];
    p.tokens.push_back(best_[0].id);
    p.states.insert(p.states.end(), state, state + n_embd_);
}

}   // namespace dflash
