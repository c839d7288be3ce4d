#include "llama/embedding_rows.h"

#include "llama-context.h"
#include "llama-graph.h"
#include "llama-model.h"
#include "llama/devices.h"
#include "llama/host_input.h"
#include "llama/mask_words.h"
#include "llama/mutable_cparams.h"

#include "ggml-cpp.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace dflash {

bool can_embed(ggml_backend_dev_t device, const ggml_tensor * tok_embd) {
    // buffers with one of the CPU's own layouts do not count as host memory here
    if (!device || !tok_embd || !tok_embd->buffer || !ggml_backend_buffer_is_host(tok_embd->buffer) ||
        tok_embd->type == GGML_TYPE_F32) {
        return false;
    }
    const ggml_context_ptr ctx(ggml_init({ 8 * ggml_tensor_overhead(), nullptr, true }));
    ggml_tensor *          rows = ggml_new_tensor_2d(ctx.get(), tok_embd->type, tok_embd->ne[0], 16);
    ggml_tensor *          ids  = ggml_new_tensor_1d(ctx.get(), GGML_TYPE_I32, 16);
    return ggml_backend_dev_supports_op(device, ggml_get_rows(ctx.get(), rows, ids));
}

void set_embedding_rows(ggml_tensor * rows, const ggml_tensor * tok_embd, const std::vector<int32_t> & tokens) {
    std::vector<uint8_t> data(ggml_nbytes(rows));
    for (size_t i = 0; i < tokens.size(); ++i) {
        const int32_t token = std::clamp<int32_t>(tokens[i], 0, (int32_t) tok_embd->ne[1] - 1);
        std::memcpy(
            data.data() + i * rows->nb[1], (const uint8_t *) tok_embd->data + token * tok_embd->nb[1], tok_embd->nb[1]);
    }
    ggml_backend_tensor_set(rows, data.data(), 0, data.size());
}

namespace {

class input_embedding_rows : public llm_graph_input_i {
  public:
    input_embedding_rows(ggml_context * ctx, const ggml_tensor * tok_embd, ggml_tensor * tokens) :
        tok_embd_(tok_embd), tokens_(tokens) {
        rows = ggml_new_tensor_2d(ctx, tok_embd->type, tok_embd->ne[0], tokens->ne[0]);
        ids  = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, tokens->ne[0]);
        ggml_set_input(rows);
        ggml_set_input(ids);
    }

    void set_input(const llama_ubatch * ubatch) override {
        if (!ubatch->token) {
            return;
        }
        std::vector<int32_t> numbers(ubatch->n_tokens);
        std::iota(numbers.begin(), numbers.end(), 0);
        ggml_backend_tensor_set(ids, numbers.data(), 0, ggml_nbytes(ids));
        set_embedding_rows(rows, tok_embd_, { ubatch->token, ubatch->token + ubatch->n_tokens });
    }
    bool can_reuse(const llm_graph_params & params) override {
        return params.ubatch.token && ids->ne[0] == params.ubatch.n_tokens;
    }

    ggml_tensor *rows, *ids;

  private:
    const ggml_tensor * tok_embd_;
    host_input          tokens_;   // no graph reads it
};

}   // namespace

void access_send_little(llama_context * ctx) {
    llama_cparams &     cparams = mutable_cparams(ctx);
    const llama_model & model   = ctx->get_model();
    ggml_backend_dev_t  first   = model.dev_layer(0);
    cparams.embeds_on           = is_apart(first) && can_embed(first, model.tok_embd) ? first : nullptr;
    cparams.pack_masks =
        !model.devices.empty() && std::all_of(model.devices.begin(), model.devices.end(),
                                      [&](const auto & d) { return is_apart(d.dev) && can_unpack_masks(d.dev); });
}

ggml_tensor * embed_tokens(const llm_graph_context & graph, ggml_tensor * tok_embd, ggml_tensor * tokens) {
    if (!graph.cparams.embeds_on || !graph.ubatch.token || graph.n_tokens > FEW_ROWS || !graph.loras->empty()) {
        return ggml_get_rows(graph.ctx0, tok_embd, tokens);
    }
    auto          input = std::make_unique<input_embedding_rows>(graph.ctx0, tok_embd, tokens);
    ggml_tensor * rows  = ggml_get_rows(graph.ctx0, input->rows, input->ids);
    for (int i = 0; i < ggml_backend_sched_get_n_backends(graph.sched); ++i) {
        ggml_backend_t backend = ggml_backend_sched_get_backend(graph.sched, i);
        if (ggml_backend_get_device(backend) == graph.cparams.embeds_on) {
            ggml_backend_sched_set_tensor_backend(graph.sched, rows, backend);
        }
    }
    graph.res->add_input(std::move(input));
    return rows;
}

}   // namespace dflash
