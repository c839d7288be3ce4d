#include "llama/drafter_tensors.h"

#include "llama-model-loader.h"
#include "llama-model.h"

#include <algorithm>
#include <vector>

namespace dflash {

namespace {

// How a graph uses a tensor; decides where it is placed.
enum class use { MATRIX, ROWS, VECTOR };   // multiplied with; rows are looked up; elementwise

// Sizes of a drafter. ANY: as in the file; the code that uses the tensor checks it.
enum size { N_EMBD, N_Q, N_KV, N_TAPS, N_LAYER, N_VOCAB_DRAFT, ANY };

struct extra {
    const char *      name;   // without "blk.N." for a layer's tensor
    bool              per_layer;
    use               used_as;
    std::vector<size> shape;                   // in ggml order
    const char *      unless_with = nullptr;   // with this tensor, upstream's own table has it
};

constexpr const char * SELECTOR = "selector_hidden.weight";

// clang-format off
const std::vector<extra> EXTRAS = {
    { "attn_q.bias",          true,  use::VECTOR, { N_Q } },
    { "attn_k.bias",          true,  use::VECTOR, { N_KV } },
    { "attn_v.bias",          true,  use::VECTOR, { N_KV } },
    { "attn_output.bias",     true,  use::VECTOR, { N_EMBD } },
    { "mask_embd.weight",     false, use::VECTOR, { N_EMBD } },   // embedding of the mask token, instead of its row
    { "layer_fusion.weight",  false, use::MATRIX, { N_TAPS, N_LAYER } },   // DFlare
    { "attn_k_ctx.weight",    true,  use::MATRIX, { N_EMBD, N_KV } },
    { "attn_v_ctx.weight",    true,  use::MATRIX, { N_EMBD, N_KV } },
    { "attn_k_ctx.bias",      true,  use::VECTOR, { N_KV } },
    { "attn_v_ctx.bias",      true,  use::VECTOR, { N_KV } },
    { "domino_gru_ih.weight", false, use::MATRIX, { N_EMBD, ANY } },   // Domino
    { "domino_gru_hh.weight", false, use::MATRIX, { ANY, ANY } },
    { "domino_hidden.weight", false, use::MATRIX, { N_EMBD, ANY } },
    { "domino_state.weight",  false, use::MATRIX, { ANY, ANY } },
    { "domino_out.weight",    false, use::ROWS,   { ANY, N_VOCAB_DRAFT } },
    { "attn_conv_base",       true,  use::VECTOR, { N_EMBD, ANY, ANY }, SELECTOR },   // DFlash 2's, of other kinds
    { "attn_conv_proj.weight", true, use::MATRIX, { N_EMBD, ANY }, SELECTOR },
    { "ffn_conv_base",        true,  use::VECTOR, { N_EMBD, ANY, ANY }, SELECTOR },
    { "ffn_conv_proj.weight", true,  use::MATRIX, { N_EMBD, ANY }, SELECTOR },
};
// clang-format on

// Prefixes of networks beside the layers. Their tensors are created as the file has them: check_gguf() knows which must
// be there, and their shapes.
constexpr const char * NETWORKS[] = { "lilicorr_" };

// An upstream tensor that is used in the same way.
llm_tensor like(const extra & tensor) {
    switch (tensor.used_as) {
        case use::MATRIX: return tensor.per_layer ? LLM_TENSOR_ATTN_K : LLM_TENSOR_FC;
        case use::ROWS: return LLM_TENSOR_DFLASH_SELECTOR_PREV;
        default: return tensor.per_layer ? LLM_TENSOR_ATTN_NORM : LLM_TENSOR_ENC_OUTPUT_NORM;
    }
}

int64_t value_of(size size, const llama_model_base & model, int64_t found) {
    const llama_hparams & h = model.hparams;
    switch (size) {
        case N_EMBD: return h.n_embd;
        case N_Q: return (int64_t) h.n_head() * h.n_embd_head_k();
        case N_KV: return h.n_embd_k_gqa();
        case N_TAPS: return (int64_t) model.target_layer_ids.size();
        case N_LAYER: return h.n_layer();
        case N_VOCAB_DRAFT: {
            const ggml_tensor * d2t = model.ml->get_tensor_meta("d2t");
            return d2t ? d2t->ne[0] : model.vocab.n_tokens();
        }
        default: return found;
    }
}

void create(llama_model_base & model, const extra & tensor, int32_t layer) {
    const std::string prefix =
        tensor.per_layer ? std::string("blk.").append(std::to_string(layer)).append(".") : std::string();
    const std::string   name  = prefix + tensor.name;
    const ggml_tensor * found = model.ml->get_tensor_meta(name.c_str());
    if (!found || (tensor.unless_with && model.ml->get_tensor_meta(tensor.unless_with))) {
        return;
    }
    int64_t ne[] = { 1, 1, 1 };
    for (size_t i = 0; i < tensor.shape.size(); ++i) {
        ne[i] = value_of(tensor.shape[i], model, found->ne[i]);
    }
    const std::string as_is = "=" + name;   // patches/0013: "=" marks a complete name
    model.create_tensor(model.tn(like(tensor), as_is.c_str(), layer), { ne[0], ne[1], ne[2] }, 0);
}

}   // namespace

void load_drafter_tensors(llama_model_base & model) {
    for (const extra & tensor : EXTRAS) {
        if (!tensor.per_layer) {
            create(model, tensor, -1);
            continue;
        }
        for (int32_t layer = 0; layer < (int32_t) model.hparams.n_layer(); ++layer) {
            create(model, tensor, layer);
        }
    }
    for (const auto & [name, weight] : model.ml->weights_map) {
        for (const char * beginning : NETWORKS) {
            if (name.rfind(beginning, 0) == 0) {
                const bool is_matrix = weight.tensor->ne[1] > 1 && name.rfind(".weight") != std::string::npos;
                const size any       = ANY;
                create(model, { name.c_str(), false, is_matrix ? use::MATRIX : use::VECTOR, { any, any, any } }, -1);
            }
        }
    }
}

ggml_tensor * drafter_tensor(const llama_model & model, const std::string & name) {
    const auto & all = model.tensors_by_name;
    const auto found = std::find_if(all.begin(), all.end(), [&](const auto & tensor) { return tensor.first == name; });
    return found == all.end() ? nullptr : found->second;
}

}   // namespace dflash
