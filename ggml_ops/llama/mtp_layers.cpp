#include "llama/mtp_layers.h"

#include "llama-model.h"

#include <algorithm>
#include <cstdio>

namespace dflash {

static constexpr int32_t MAX_LENGTH = 17;   // where one layer proposes all positions

int32_t access_mtp_heads(const llama_model * model) { return (int32_t) model->hparams.n_layer_nextn; }

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
    return std::any_of(std::begin(MTP_ARCHS), std::end(MTP_ARCHS),
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
