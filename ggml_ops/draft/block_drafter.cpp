#include "draft/block_drafter.h"

#include "base/abort_guard.h"
#include "base/backends.h"
#include "base/error.h"
#include "draft/layers.h"
#include "llama/access.h"
#include "llama/devices.h"
#include "llama/embedding_rows.h"
#include "llama/tap_store.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace dflash {

// ---- construction ----

namespace {

// Throws unless the vocabularies are equal, except for padding at the end.
void check_vocabulary(const llama_model * drafter, const llama_model * target) {
    // added tokens differ between converters (dflash_local/diagnose/pair.py)
    constexpr int32_t   FEW_TOKENS = 128;
    const llama_vocab * ours       = llama_model_get_vocab(drafter);
    const llama_vocab * theirs     = llama_model_get_vocab(target);
    const int32_t       n_ours = llama_vocab_n_tokens(ours), n_theirs = llama_vocab_n_tokens(theirs);
    if (n_ours == n_theirs) {
        return;
    }
    const int32_t n_both   = std::min(n_ours, n_theirs);
    int32_t       n_differ = 0;
    for (llama_token token = 0; token < n_both; ++token) {
        n_differ += std::strcmp(llama_vocab_get_text(ours, token), llama_vocab_get_text(theirs, token)) != 0;
    }
    fail_if(n_differ > FEW_TOKENS, "the drafter's vocabulary has ", n_ours, " tokens, the target's ", n_theirs,
        ", and ", n_differ, " of the first differ: convert the drafter with this target");
}

// Throws unless the drafter, whose header is sound (check_gguf), was made for this target.
void check_pair(const drafter_model & model, const llama_model * target) {
    const int32_t n_embd = llama_model_n_embd(target);
    fail_if(model.n_embd != n_embd, "dflash.embedding_length is ", model.n_embd, ", the target's is ", n_embd,
        ": use the drafter that was trained for this target");
    for (const int32_t layer : model.target_layers) {
        fail_if(!access_has_tap(target, layer), "dflash.target_layers has ", layer, ", which the target (",
            access_arch(target), ", ", llama_model_n_layer(target), " layers) does not offer as a tap");
    }
}

// The drafter borrows the embeddings and the output projection that it lacks from the target. Returns whether it does
// the latter.
bool share_heads(drafter_model & model, const llama_model * target) {
    const target_heads heads  = access_heads(target);
    const bool         shares = !model.output;
    if (!model.tok_embd) {
        model.tok_embd = heads.tok_embd;
    }
    if (shares) {
        fail_if(heads.scaled_output, "the target's output projection is NVFP4, which a drafter cannot share");
        model.output = heads.output;
    }
    fail_if(!model.tok_embd || !model.output,
        "neither the drafter nor the target has token embeddings and an output projection");
    fail_if(model.output->ne[0] != model.n_embd || model.tok_embd->ne[0] != model.n_embd,
        "the output projection's width differs from dflash.embedding_length");
    return shares;
}

// Limits draft tokens to those that both models know: the other's tensors have no rows for padding.
void bound_vocabulary(drafter_model & model, const llama_model * target) {
    model.n_vocab      = std::min(model.n_vocab, llama_vocab_n_tokens(llama_model_get_vocab(target)));
    model.n_candidates = std::min(model.n_candidates, model.n_vocab);
    fail_if(model.n_candidates < 1 || model.tok_embd->ne[1] < model.n_vocab,
        "dflash.selector_vocab_size or token_embd.weight leaves no token to propose");
}

std::vector<int64_t> read_d2t(const drafter_model & model) {
    std::vector<int64_t> d2t;
    if (model.d2t && model.d2t->data) {   // a memory plan has no data
        d2t.resize(model.d2t->ne[0]);
        ggml_backend_tensor_get(model.d2t, d2t.data(), 0, ggml_nbytes(model.d2t));
    }
    for (const int64_t id : d2t) {
        fail_if(id < 0 || id >= model.n_vocab, "d2t maps to token ", id, ", outside the vocabulary");
    }
    return d2t;
}

int32_t find_mask_token(const llama_model * model, int32_t n_vocab) {
    const int32_t token = llama_vocab_mask(llama_model_get_vocab(model));
    fail_if(
        token >= n_vocab, "tokenizer.ggml.mask_token_id is outside the target's vocabulary: convert the drafter again");
    return token;
}

// Throws unless a drafter can go on with what another one holds of the slots, and with the taps that it gets.
void check_form(const drafter_model & model, const drafter_model & other) {
    const auto same = [](const char * field, int64_t ours, int64_t theirs) {
        fail_if(ours != theirs, field, " is ", ours, ", that of the drafter in use ", theirs,
            ": only a drafter of the same form can take its place");
    };
    fail_if(model.kind != other.kind, "it is a ", model.kind->title, " drafter, the one in use a ", other.kind->title,
        " drafter: only one of the same kind can take its place");
    fail_if(model.target_layers != other.target_layers, "dflash.target_layers differ from those of the drafter in use: "
                                                        "only one that reads the same can take its place");
    same("dflash.block_size", model.block_size, other.block_size);
    same("dflash.block_count", (int64_t) model.layers.size(), (int64_t) other.layers.size());
    same("dflash.attention.head_count_kv", model.n_head_kv, other.n_head_kv);
    same("dflash.attention.key_length", model.head_dim, other.head_dim);
    same("the number of tokens of the longest draft", model.max_length(), other.max_length());
    same("the type of its rotation", model.rope_type, other.rope_type);
    same("the use of dflash.rope.dimension_sections", model.has_sections(), other.has_sections());
}

// The devices of the drafter and of the tensors that it shares; the scheduler wants the CPU last.
std::vector<ggml_backend_ptr> init_backends(
    const llama_model * model, const std::vector<const ggml_tensor *> & shared, int32_t n_threads) {
    std::vector<ggml_backend_dev_t> devices = access_devices(model);
    for (const ggml_tensor * tensor : shared) {
        ggml_backend_dev_t device = tensor ? device_of(tensor) : nullptr;
        if (!is_cpu(device) && std::find(devices.begin(), devices.end(), device) == devices.end()) {
            devices.push_back(device);
        }
    }
    devices.push_back(ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU));

    std::vector<ggml_backend_ptr> backends;
    for (ggml_backend_dev_t device : devices) {
        backends.emplace_back(device ? ggml_backend_dev_init(device, nullptr) : nullptr);
        fail_if(!backends.back(), "a backend of the drafter could not be initialized");
        set_threads(device, backends.back().get(), n_threads);
    }
    return backends;
}

}   // namespace

block_drafter::block_drafter(const llama_model * model, const llama_model * target, const drafter_params & params) :
    block_drafter(model, target, params, nullptr) {}

block_drafter::block_drafter(const llama_model * model, const llama_model * target, const block_drafter & other) :
    block_drafter(model, target, other.params_, &other) {}

block_drafter::block_drafter(const llama_model * model, const llama_model * target, const drafter_params & params,
    const block_drafter * other) : loaded_(model), model_(access_drafter(model)), params_(params) {
    check_pair(model_, target);
    if (other) {
        check_form(model_, other->model_);
    }
    check_vocabulary(model, target);
    const bool shares = share_heads(model_, target);
    bound_vocabulary(model_, target);
    d2t_ = read_d2t(model_);
    share_part(target, shares, other);
    set_target_ids();
    mask_token_                       = find_mask_token(model, model_.n_vocab);
    selector_                         = make_selector(model_, params_.n_slots);
    ggml_backend_buffer_type_t memory = memory_beside(model_.layers[0].wk);
    on_device_                        = memory != ggml_backend_cpu_buffer_type();
    if (on_device_) {
        ggml_backend_dev_t device = ggml_backend_buft_get_device(memory);
        transfers_                = { can_unpack_masks(device), can_embed(device, model_.tok_embd), true };
    }
    backends_ = init_backends(
        model, { model_.tok_embd, model_.output, params_.taps ? params_.taps->rows() : nullptr }, params_.n_threads);
    kv_ = other ? other->kv_
                : std::make_shared<kv_ring>(model_, params_.n_slots, params_.n_ctx, params_.type_k, params_.type_v,
                      params_.kv_offload, params_.history_limit);

    std::vector<ggml_backend_t> backends;
    for (const ggml_backend_ptr & backend : backends_) {
        backends.push_back(backend.get());
    }
    graphs_ = std::make_unique<graph_cache>(backends, most_tensors(model_, params_.n_slots));
}

// Takes a part of a shared head, if that is enough: what `other` has, which knows the texts.
void block_drafter::share_part(const llama_model * target, bool shares, const block_drafter * other) {
    const bool     can    = shares && model_.kind->head_in_part;
    const uint32_t wanted = params_.draft_vocab;
    fail_if(!can && wanted != 0 && wanted != ALL_TOKENS, "draft_vocab is ", wanted, ", but ", model_.kind->title,
        " drafters ", shares ? "need all tokens" : "with an output projection of their own keep its tokens",
        ": leave it out");
    const whole_head whole = { model_.output, params_.head, model_.n_candidates, model_.layers[0].wk };
    if (const int32_t n = can ? head_part::size(whole, wanted) : 0; n > 0) {
        const int32_t n_candidates = std::max(model_.selector_top_k, model_.lilicorr.top_k);   // of a position
        fail_if(n < n_candidates && n < whole.n_tokens, "draft_vocab is ", n, ", fewer than the ", n_candidates,
            " candidates that this drafter compares: give at least ", n_candidates, ", or leave it out");
        const bool same = other && other->part_ && other->model_.n_candidates == model_.n_candidates;
        part_           = same ? other->part_ : std::make_shared<head_part>(whole, n, llama_model_get_vocab(target));
        model_.output   = part_->tensor();
    } else if (shares && shared_head::is_remote(whole.tensor, whole.beside)) {
        copy_remote(target, other);
    }
}

void block_drafter::copy_remote(const llama_model * target, const block_drafter * other) {
    if (other && other->head_) {
        head_         = other->head_;
        model_.output = head_->tensor();
        return;
    }
    // a tied head is the embeddings' own tensor, which is on this machine
    const target_heads heads = access_heads(target);
    const bool         tied  = heads.tok_embd && std::strcmp(heads.tok_embd->name, heads.output->name) == 0;
    head_                    = std::make_shared<shared_head>(model_.output, model_.output->ne[1], model_.layers[0].wk);
    if (model_.output->data) {   // else a memory plan: only the size is known
        head_->copy(tied ? heads.tok_embd : heads.output);
    }
    model_.output = head_->tensor();
}

void block_drafter::set_target_ids() {
    if (part_) {
        d2t_.assign(part_->tokens().begin(), part_->tokens().end());
    }
    if (d2t_.empty()) {
        return;
    }
    if (!target_ids_) {
        target_ids_       = std::make_unique<target_ids>(model_.n_logits(), model_.layers[0].wk);
        model_.target_ids = target_ids_->tensor();
    }
    if (model_.output->data) {   // else a memory plan
        target_ids_->set(d2t_);
    }
}

drafter_layers block_drafter::layers() const {
    return { loaded_, model_.block_size, model_.n_logits(), model_.anchor_first, model_.keeps_block(),
        model_.target_layers, llama_vocab_mask(llama_model_get_vocab(loaded_)) };
}

void block_drafter::count_text(const std::vector<int32_t> & tokens, size_t first) {
    if (part_) {
        part_->count_text(tokens, first);
    }
}

void block_drafter::follow_texts() {
    if (part_ && part_->follow_texts()) {
        set_target_ids();
    }
}

std::map<ggml_backend_buffer_type_t, size_t> block_drafter::copied_memory() const {
    if (part_) {
        return part_->memory();
    }
    return head_ ? std::map<ggml_backend_buffer_type_t, size_t>{ { head_->memory_type(), head_->memory_bytes() } }
                 : std::map<ggml_backend_buffer_type_t, size_t>{};
}

// ---- one pass ----

namespace {

template <class T> void upload(ggml_tensor * tensor, const std::vector<T> & data) {
    if (tensor) {
        ggml_backend_tensor_set(tensor, data.data(), 0, data.size() * sizeof(T));
    }
}

// As F32, from F32 or F16.
std::vector<float> download_floats(const ggml_tensor * tensor) {
    if (tensor->type == GGML_TYPE_F32) {
        return download<float>(tensor);
    }
    const std::vector<ggml_fp16_t> halves = download<ggml_fp16_t>(tensor);
    std::vector<float>             data(halves.size());
    ggml_fp16_to_fp32_row(halves.data(), data.data(), (int64_t) data.size());
    return data;
}

// A power of two, at most 1, that limits a row of taps to TAP_LIMIT: sums of 32 elements then fit into F16.
float tap_scale(const float * row, int32_t n) {
    constexpr float TAP_LIMIT = 1024.0f;
    float           largest   = 0.0f;
    for (int32_t i = 0; i < n; ++i) {
        largest = std::max(largest, std::fabs(row[i]));
    }
    if (largest <= TAP_LIMIT || !std::isfinite(largest)) {
        return 1.0f;
    }
    return std::exp2(-std::ceil(std::log2(largest / TAP_LIMIT)));
}

// Scales down rows of taps [n, size] where necessary; returns the inverse factors, [n].
std::vector<float> scale_taps(std::vector<float> & taps, int32_t size) {
    std::vector<float> unscale;
    for (float *row = taps.data(), *end = row + taps.size(); row < end; row += size) {
        const float scale = tap_scale(row, size);
        std::transform(row, row + size, row, [scale](float x) { return x * scale; });
        unscale.push_back(1.0f / scale);
    }
    return unscale;
}

// Positions of rows for ggml's rope. M-RoPE has four axes, one after the other: those of rope_position, and one that is
// always 0.
class positions {
  public:
    positions(int32_t n_rows, bool mrope) :
        n_rows_(n_rows), n_axes_(mrope ? 3 : 1), data_((size_t) n_rows * (mrope ? 4 : 1)) {}

    void set(int32_t row, const rope_position & at) {
        for (int32_t axis = 0; axis < n_axes_; ++axis) {
            data_[(size_t) axis * n_rows_ + row] = at[axis];
        }
    }
    void                         set(int32_t row, int32_t pos) { set(row, { pos, pos, pos }); }
    const std::vector<int32_t> & data() const { return data_; }

  private:
    int32_t              n_rows_, n_axes_;
    std::vector<int32_t> data_;
};

}   // namespace

void block_drafter::run(
    const std::vector<draft_job> & all_jobs, int32_t length, std::vector<draft> & drafts, draft_probe * probe) {
    const abort_guard guard(abort_guard::phase::pass);
    drafts.assign(all_jobs.size(), {});
    std::vector<draft_job> jobs = all_jobs;
    inject_surplus(jobs);
    const graph_shape shape = shape_of(jobs, length, probe != nullptr);
    if (shape.n_rows() == 0) {
        return;
    }

    draft_graph & graph = prepare(shape);
    set_inputs(graph, jobs);
    fail_if(
        ggml_backend_sched_graph_compute(graph.sched.get(), graph.gf) != GGML_STATUS_SUCCESS, "a drafter pass failed");
    if (shape.n_block() == 0) {
        return;
    }
    read_drafts(graph, jobs, drafts, probe);
    if (probe) {
        probe->hidden = download<float>(graph.hidden);
        probe->logits = download<float>(graph.logits);
    }
}

// Advances the job by n_rows rows.
void block_drafter::skip(draft_job & job, int32_t n_rows) const {
    job.taps += job.taps ? (size_t) n_rows * tap_size() : 0;
    job.cells += job.cells ? n_rows : 0;
    job.rope += job.rope ? n_rows : 0;
    job.pos += n_rows;
    job.n_inject -= n_rows;
}

// Makes the jobs' rows fit into one pass: rows of long prompts get passes of their own first.
void block_drafter::inject_surplus(std::vector<draft_job> & jobs) {
    const int32_t n_most   = std::min(params_.n_batch, kv_->max_rows());   // per job
    int32_t       n_inject = 0;
    for (draft_job & job : jobs) {
        if (job.pos != kv_->end(job.slot)) {
            kv_->rewind(job.slot, job.pos);
        }
        while (job.n_inject > n_most) {
            inject(job, n_most);
        }
        if (n_inject + job.n_inject > params_.n_batch) {
            inject(job, job.n_inject);
        }
        n_inject += job.n_inject;
    }
}

// Runs a pass for the job's first n_rows rows.
void block_drafter::inject(draft_job & job, int32_t n_rows) {
    draft_job part = job;
    part.n_inject  = n_rows;
    part.denoise   = false;
    std::vector<draft> no_drafts;
    run({ part }, 0, no_drafts);
    skip(job, n_rows);
}

// Blocks of `length` tokens.
static void set_blocks(graph_shape & shape, const drafter_model & model, int32_t length) {
    shape.n_block_rows = model.n_rows(length);
    shape.first        = model.anchor_first ? 0 : 1;
    shape.n_pos        = length - 1;
}

graph_shape block_drafter::shape_of(const std::vector<draft_job> & jobs, int32_t length, bool probe) const {
    graph_shape shape;
    shape.probe = probe;
    for (const draft_job & job : jobs) {
        shape.n_inject += job.n_inject;
        if (job.denoise) {
            shape.slots.push_back(job.slot);
            shape.spans.push_back(kv_->span(job.pos + job.n_inject));
        }
    }
    shape.n_inject = inject_bucket(shape.n_inject, on_device_);
    if (!shape.slots.empty()) {
        set_blocks(shape, model_, length);
    }
    return shape;
}

draft_graph & block_drafter::prepare(const graph_shape & shape) {
    if (draft_graph * graph = graphs_->find(shape)) {
        ++n_graphs_reused;
        return *graph;
    }
    ++n_graphs_built;
    return graphs_->add([&] { return build_new(shape); });
}

std::unique_ptr<draft_graph> block_drafter::build_new(const graph_shape & shape) const {
    auto graph       = std::make_unique<draft_graph>(shape, graphs_->n_tensors());
    graph->alignment = graphs_->alignment();
    graph->transfers = transfers_;
    build(*graph);
    return graph;
}

void block_drafter::reserve() {
    const abort_guard guard(abort_guard::phase::pass);
    graph_shape       shape;
    shape.n_inject = inject_bucket(params_.n_batch, on_device_);
    set_blocks(shape, model_, model_.max_length());
    for (int32_t slot = 0; slot < params_.n_slots; ++slot) {
        shape.slots.push_back(slot);
        shape.spans.push_back(kv_->span(INT32_MAX));
    }
    graphs_->reserve([&] { return build_new(shape); });
}

// The rows of each block that the head needs: [n_embd, n_block] -> [n_embd, n_head * n_slots].
static ggml_tensor * first_rows(const draft_graph & graph, ggml_tensor * hidden) {
    const graph_shape & shape = graph.shape;
    return shape.n_head() == shape.n_block_rows ? hidden
                                                : rows_of_blocks(graph, hidden, shape.n_block_rows, 0, shape.n_head());
}

void block_drafter::build(draft_graph & graph) const {
    layer_builder builder(graph, model_, *kv_, params_.flash_attn);
    ggml_tensor * taps = builder.tap_rows(params_.taps);
    if (taps) {
        selector_->keep(graph, taps);
    }
    ggml_tensor * block = builder.block_rows();
    for (size_t il = 0; il < model_.layers.size(); ++il) {
        block = builder.layer(il, taps, block);
    }
    if (!block) {
        return;
    }
    ggml_tensor * hidden = builder.hidden(block);
    if (graph.shape.probe) {
        graph.hidden = graph.output(hidden);
    }
    // The head also runs over the anchors' rows, even if they propose nothing: the CPU's matrix products prefer
    // multiples of 4 rows, and a contiguous view is cheaper than one with gaps.
    hidden               = first_rows(graph, hidden);
    ggml_tensor * logits = builder.logits(hidden);
    if (graph.shape.probe) {
        graph.logits = graph.output(logits);
    }
    selector_->build(graph, hidden, logits);
}

// Sets the jobs' taps, followed by padding.
void block_drafter::set_taps(const draft_graph & graph, const std::vector<draft_job> & jobs) {
    if (graph.tap_cells) {
        std::vector<int32_t> cells;
        for (const draft_job & job : jobs) {
            std::transform(job.cells, job.cells + job.n_inject, std::back_inserter(cells),
                [](const tap_cell & cell) { return *cell; });
        }
        cells.resize(graph.shape.n_inject, tap_store::ZEROS);
        upload(graph.tap_cells, cells);
    } else if (graph.taps) {
        std::vector<float> taps;
        taps.reserve((size_t) graph.shape.n_inject * tap_size());
        for (const draft_job & job : jobs) {
            taps.insert(taps.end(), job.taps, job.taps + (size_t) job.n_inject * tap_size());
        }
        taps.resize((size_t) graph.shape.n_inject * tap_size());
        if (graph.unscale) {
            upload(graph.unscale, scale_taps(taps, tap_size()));
        }
        upload(graph.taps, taps);
    }
}

// Rows: the jobs' taps, padding up to n_inject, then the blocks.
void block_drafter::set_inputs(const draft_graph & graph, const std::vector<draft_job> & jobs) {
    const graph_shape &  shape = graph.shape;
    std::vector<int32_t> tokens, anchors, table_rows;
    std::vector<float>   masked;
    std::vector<int64_t> cells, newest;
    positions            pos_kv(shape.n_rows(), model_.is_mrope()), pos_q(shape.n_block(), model_.is_mrope());

    int32_t row = 0;
    for (const draft_job & job : jobs) {
        for (int32_t i = 0; i < job.n_inject; ++i) {
            const int32_t pos = job.pos + i;
            pos_kv.set(row++, job.rope ? job.rope[i] : rope_position{ pos, pos, pos });
            cells.push_back(kv_->cell(job.slot, pos));
            newest.push_back(i + 1 == job.n_inject ? job.slot : params_.n_slots);
        }
        kv_->extend(job.slot, job.pos + job.n_inject);
    }
    cells.resize(shape.n_inject, kv_->padding_cell(jobs[0].slot));
    newest.resize(shape.n_inject, params_.n_slots);
    row = shape.n_inject;

    for (const draft_job & job : jobs) {
        if (!job.denoise) {
            continue;
        }
        set_masks(graph, (int32_t) anchors.size(), job.window);
        anchors.push_back(job.anchor < model_.n_vocab ? job.anchor : mask_token_);   // may be padding of the target
        const int32_t anchor_rope = job.anchor_rope >= 0 ? job.anchor_rope : kv_->end(job.slot);
        for (int32_t i = 0; i < shape.n_block_rows; ++i) {
            pos_q.set((int32_t) tokens.size(), anchor_rope + i);
            pos_kv.set(row++, anchor_rope + i);
            cells.push_back(kv_->block_cell(job.slot, i));
            tokens.push_back(i == 0 ? anchors.back() : mask_token_);
            table_rows.push_back(i == 0 ? (int32_t) anchors.size() - 1 : shape.n_slots());
            masked.push_back(tokens.back() == mask_token_ ? 1.0f : 0.0f);
        }
    }

    set_taps(graph, jobs);
    upload(graph.pos_kv, pos_kv.data());
    upload(graph.cells, cells);
    upload(graph.newest, newest);
    if (graph.token_rows) {
        std::vector<int32_t> table = anchors;
        table.push_back(mask_token_);
        set_embedding_rows(graph.token_rows, model_.tok_embd, table);
    }
    upload(graph.tokens, graph.token_rows ? table_rows : tokens);
    upload(graph.masked, masked);
    upload(graph.pos_q, pos_q.data());
    upload(graph.anchors, anchors);
}

// Sets the masks of the shape's slot i.
void block_drafter::set_masks(const draft_graph & graph, int32_t i, int32_t window) {
    const int32_t slot = graph.shape.slots[i];
    set_mask(graph.masks[i], slot, window, model_.causal);
    set_mask(graph.masks_swa[i], slot, std::min(model_.n_swa, window), model_.causal_swa);
}

void block_drafter::set_mask(const draft_mask & mask, int32_t slot, int32_t window, bool causal) {
    ggml_tensor * tensor = mask.tensor;
    if (!tensor) {
        return;
    }
    kv_->fill_mask(mask_, slot, (int32_t) tensor->ne[0], (int32_t) tensor->ne[1], window, causal);
    if (mask.words.words) {
        dflash::set_mask(mask.words, GGML_TYPE_F32, mask_.data());
        return;
    }
    if (tensor->type == GGML_TYPE_F32) {
        upload(tensor, mask_);
        return;
    }
    mask_f16_.resize(mask_.size());
    ggml_fp32_to_fp16_row(mask_.data(), mask_f16_.data(), (int64_t) mask_.size());
    upload(tensor, mask_f16_);
}

int32_t block_drafter::target_token(int32_t id) const {
    fail_if(id < 0 || id >= model_.n_logits(), "the drafter's device returned token ", id, " of a vocabulary of ",
        model_.n_logits());
    return d2t_.empty() ? id : (int32_t) d2t_[id];
}

// Makes one draft for each job that denoises, from the outputs of a pass.
void block_drafter::read_drafts(const draft_graph & graph, const std::vector<draft_job> & jobs,
    std::vector<draft> & drafts, draft_probe * probe) const {
    const std::vector<int32_t> ids    = download<int32_t>(graph.ids);
    const std::vector<float>   scores = download_floats(graph.scores);
    const size_t               n_pos = graph.shape.n_pos, n_ids = n_pos * selector_->top_k(),
                 n_scores = n_pos * selector_->n_scores();
    auto next_ids         = ids.begin();
    auto next_scores      = scores.begin();
    for (size_t i = 0; i < jobs.size(); ++i) {
        if (!jobs[i].denoise) {
            continue;
        }
        draft & drafted = drafts[i];
        drafted.length  = graph.shape.n_pos + 1;
        drafted.top_k   = selector_->top_k();
        drafted.lattice = kind().lattice;
        drafted.ids.assign(next_ids, next_ids + n_ids);
        drafted.probs.assign(next_scores, next_scores + n_scores);
        next_ids += n_ids;
        next_scores += n_scores;
        selector_->finish(drafted, probe);
        for (int32_t & id : drafted.ids) {
            id = target_token(id);
        }
        if (probe) {
            probe->ids = drafted.ids;
        }
    }
}

}   // namespace dflash
