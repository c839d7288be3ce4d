#include "llama/mtp_layers.h"

#include "llama-model.h"

#include <algorithm>
#include <cstdio>
#include <sstream>

namespace dflash {

static constexpr int32_t MAX_LENGTH = 17;   // where one layer proposes all positions

bool access_is_assistant(const llama_model * model) { return model->arch == LLM_ARCH_GEMMA4_ASSISTANT; }

// The layer of a target whose K and V an assistant's layer reads (llama_model::create_memory).
static uint32_t shared_layer(const llama_hparams & target, bool is_window) {
    return target.n_layer() - (is_window ? 2 : 1);
}

static std::string heads_of(const llama_hparams & h, uint32_t layer) {
    return std::to_string(h.n_head_kv(layer)) + " heads of " + std::to_string(h.n_embd_head_k(layer)) + " and " +
           std::to_string(h.n_embd_head_v(layer)) + " numbers";
}

std::string access_assistant_misfit(const llama_model * assistant, const llama_model * target) {
    const llama_hparams &a = assistant->hparams, &t = target->hparams;
    if (a.n_embd_out() != t.n_embd) {
        return "its embedding_length_out is " + std::to_string(a.n_embd_out()) + ", the target's embedding_length " +
               std::to_string(t.n_embd);
    }
    if (t.n_layer() < 2 || !t.is_swa(shared_layer(t, true)) || t.is_swa(shared_layer(t, false))) {
        return "the target's last two layers are not one with a window and one without";
    }
    if (!a.is_swa_any()) {
        return "its sliding_window_pattern has no layer with a window";
    }
    for (uint32_t il = 0; il < a.n_layer_all; ++il) {
        const uint32_t    of    = shared_layer(t, a.is_swa(il));
        const std::string reads = heads_of(a, il), held = heads_of(t, of);
        if (reads != held) {
            std::ostringstream text;
            text << "its layer " << il << " reads " << reads << ", the target's layer " << of << " has " << held;
            return text.str();
        }
    }
    return "";
}

int32_t access_mtp_heads(const llama_model * model) {
    return access_is_assistant(model) ? 1 : (int32_t) model->hparams.n_layer_nextn;
}

int32_t access_mtp_length(const llama_model * model) {
    const int32_t n_heads = access_mtp_heads(model);
    return n_heads > 1 ? std::min(n_heads + 1, MAX_LENGTH) : MAX_LENGTH;
}

mtp_projection access_mtp_projection(const llama_model * model) {
    const llama_hparams & h = model->hparams;
    if (h.n_layer_nextn != 1 || access_mtp_crops(model) || h.f_logit_scale != 0.0f) {
        return {};
    }
    const llama_layer_nextn & layer = model->layers[h.n_layer()].nextn;
    const bool                own   = layer.shared_head_head != nullptr;
    if (own ? layer.shared_head_head_s : model->output_s) {   // NVFP4
        return {};
    }
    return { own ? layer.shared_head_head : model->output, layer.eh_proj };
}

bool access_mtp_crops(const llama_model * model) {
    return access_is_assistant(model) ||
           std::any_of(std::begin(MTP_ARCHS), std::end(MTP_ARCHS),
               [&](const mtp_arch & arch) { return arch.crops && model->arch_name() == arch.name; });
}

mtp_size access_mtp_size(const llama_model * model) {
    mtp_size size;
    for (const auto & [name, tensor] : model->tensors_by_name) {
        uint32_t layer = 0;
        if (std::sscanf(name.c_str(), "blk.%u.", &layer) == 1 && layer >= model->hparams.n_layer()) {
            size.n_params += ggml_nelements(tensor);
            size.bytes += ggml_nbytes(tensor);
        }
    }
    return size;
}

}   // namespace dflash
