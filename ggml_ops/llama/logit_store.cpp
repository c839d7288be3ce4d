#include "llama/logit_store.h"

#include "llama-context.h"
#include "llama-graph.h"
#include "llama-model.h"
#include "llama/devices.h"
#include "llama/mutable_cparams.h"

#include "ggml-cpp.h"

#include <algorithm>

namespace dflash {

namespace {

// Finds the best of the logits [n_vocab, rows].
best_logits_tensors find_best(ggml_context * ctx, ggml_tensor * logits, needed_logits what) {
    best_logits_tensors found;
    if (what == needed_logits::largest) {
        found.ids = ggml_argmax(ctx, logits);
    } else if (what == needed_logits::top) {
        found.ids          = ggml_top_k(ctx, logits, (int) std::min<int64_t>(TOP_LOGITS, logits->ne[0]));
        ggml_tensor * rows = ggml_reshape_3d(ctx, logits, 1, logits->ne[0], logits->ne[1]);
        found.values       = ggml_get_rows(ctx, rows, found.ids);
    }
    return found;
}

// Stores what a graph finds, so that another graph is built if something else is wanted.
class input_best_logits : public llm_graph_input_i {
  public:
    explicit input_best_logits(needed_logits what) : what_(what) {}

    void set_input(const llama_ubatch *) override {}
    bool can_reuse(const llm_graph_params & params) override {
        return params.cparams.logit_store && params.cparams.logit_store->wanted == what_;
    }

  private:
    needed_logits what_;
};

// Starts reading a whole tensor; the end of the pass waits for it.
template <class T> void read_async(ggml_backend_sched_t sched, ggml_tensor * tensor, std::vector<T> & data) {
    data.resize(tensor ? ggml_nelements(tensor) : 0);
    if (tensor) {
        ggml_backend_t backend = ggml_backend_sched_get_tensor_backend(sched, tensor);
        ggml_backend_tensor_get_async(backend, tensor, data.data(), 0, ggml_nbytes(tensor));
    }
}

}   // namespace

bool logit_store::can_find(ggml_backend_dev_t device, int32_t n_vocab) {
    const ggml_context_ptr ctx(ggml_init({ 32 * ggml_tensor_overhead(), nullptr, true }));
    ggml_tensor *          logits = ggml_new_tensor_2d(ctx.get(), GGML_TYPE_F32, n_vocab, 4);
    for (const needed_logits what : { needed_logits::largest, needed_logits::top }) {
        const best_logits_tensors found = find_best(ctx.get(), logits, what);
        for (const ggml_tensor * tensor : { found.ids, found.values }) {
            if (tensor && !ggml_backend_dev_supports_op(device, tensor)) {
                return false;
            }
        }
    }
    return true;
}

bool logit_store::keep(const llm_graph_result & res, const llama_ubatch & ubatch, ggml_backend_sched_t sched) {
    const auto n_outputs = std::count_if(ubatch.output, ubatch.output + ubatch.n_tokens, [](int8_t o) { return o; });
    if (!ubatch.data || ubatch.data->batch_idxs.size() != ubatch.n_tokens || res.t_logits->ne[0] != n_vocab_ ||
        res.t_logits->ne[1] != n_outputs) {
        return false;
    }
    const auto & idxs = ubatch.data->batch_idxs;
    rows_.assign(*std::max_element(idxs.begin(), idxs.end()) + 1, -1);
    for (int32_t i = 0, n = 0; i < (int32_t) ubatch.n_tokens; ++i) {
        rows_[idxs[i]] = ubatch.output[i] ? n++ : -1;
    }
    logits_ = res.t_logits;
    found_  = res.best.values ? needed_logits::top : res.best.ids ? needed_logits::largest : needed_logits::whole_row;
    fetched_.assign(n_outputs, {});
    read_async(sched, res.best.ids, ids_);
    read_async(sched, res.best.values, values_);
    return true;
}

const float * logit_store::row(int32_t i) {
    const int32_t row = index(i);
    if (row < 0) {
        return nullptr;
    }
    std::vector<float> & data = fetched_[row];
    if (data.empty()) {
        data.resize(n_vocab_);
        ggml_backend_tensor_get(logits_, data.data(), row * logits_->nb[1], n_vocab_ * sizeof(float));
    }
    return data.data();
}

bool logit_store::largest(int32_t i, int32_t & token) const {
    const int32_t row = index(i);
    if (row < 0 || found_ != needed_logits::largest) {
        return false;
    }
    token = ids_[row];
    return token >= 0 && token < n_vocab_;
}

bool logit_store::top(int32_t i, std::vector<llama_token_data> & out) const {
    const int32_t row = index(i), k = std::min(TOP_LOGITS, n_vocab_);
    if (row < 0 || found_ != needed_logits::top) {
        return false;
    }
    out.clear();
    for (int32_t j = row * k; j < (row + 1) * k; ++j) {
        if (!(values_[j] < INFINITY) || ids_[j] < 0 || ids_[j] >= n_vocab_) {   // invalid: the whole row has to be read
            return false;
        }
        out.push_back({ ids_[j], values_[j], 0.0f });
    }
    std::sort(out.begin(), out.end(),
        [](const llama_token_data & a, const llama_token_data & b) { return a.logit > b.logit; });
    return true;
}

// ---- llama_context ----

void access_set_logit_store(llama_context * ctx, logit_store * store) { mutable_cparams(ctx).logit_store = store; }

logit_store * access_logit_store(const llama_context * ctx) { return ctx->get_cparams().logit_store; }

ggml_backend_dev_t access_head_device(const llama_model * model) {
    ggml_backend_dev_t device = model->dev_output();
    return is_apart(device) ? device : nullptr;
}

void add_best_logits(llm_graph_context & graph) {
    const logit_store * store = graph.cparams.logit_store;
    graph.res->best           = {};
    if (!store) {
        return;
    }
    graph.res->add_input(std::make_unique<input_best_logits>(store->wanted));
    ggml_tensor * logits = graph.res->t_logits;
    if (!logits || !ggml_is_contiguous(logits) || logits->ne[0] * logits->ne[1] != ggml_nelements(logits)) {
        return;
    }
    graph.res->best = find_best(graph.ctx0, logits, store->wanted);
    for (ggml_tensor * tensor : { graph.res->best.ids, graph.res->best.values }) {
        if (tensor) {
            ggml_set_output(tensor);
            ggml_build_forward_expand(graph.gf, tensor);
        }
    }
}

bool keep_logits(const llama_cparams & cparams, const llm_graph_result & res, const llama_ubatch & ubatch,
    uint32_t n_tokens, ggml_backend_sched_t sched) {
    logit_store * store = cparams.logit_store;
    if (!store) {
        return false;
    }
    store->forget();
    return ubatch.n_tokens == n_tokens && store->keep(res, ubatch, sched);
}

}   // namespace dflash
