#include "engine/model_description.h"

#include "llama/access.h"
#include "llama/mtp_layers.h"

#include <algorithm>

namespace dflash {

json describe(const llama_model * m) {
    char desc[256] = {};
    llama_model_desc(m, desc, sizeof(desc));
    return {
        { "arch", access_arch(m) },
        { "description", desc },
        { "ftype", llama_ftype_name(llama_model_ftype(m)) },
        { "vocab_type", (int) llama_vocab_type(llama_model_get_vocab(m)) },
        { "n_params", llama_model_n_params(m) },
        { "size", llama_model_size(m) },
        { "n_vocab", llama_vocab_n_tokens(llama_model_get_vocab(m)) },
        { "n_embd", llama_model_n_embd(m) },
        { "n_layer", llama_model_n_layer(m) },
        { "n_ctx_train", llama_model_n_ctx_train(m) },
    };
}

// MTP layers in the target's own file.
static json describe_own_layers(const llama_model * target) {
    const mtp_size size = access_mtp_size(target);
    json           d    = describe(target);
    d["n_params"]       = size.n_params;
    d["size"]           = size.bytes;
    d["n_layer"]        = access_mtp_heads(target);
    return d;
}

static json describe_layers(const drafter_layers & layers, const model_pair & models) {
    const bool own     = layers.model == models.target();
    json       d       = own ? describe_own_layers(layers.model) : describe(layers.model);
    d["block_size"]    = layers.block_size;
    d["anchor_first"]  = layers.anchor_first;
    d["keeps_block"]   = layers.keeps_block;
    d["n_vocab_draft"] = layers.n_logits;
    d["target_layers"] = layers.target_layers;
    d["mask_token"]    = layers.mask_token ? json(*layers.mask_token) : json(nullptr);
    return d;
}

int32_t draft_ctx(const drafter & drafter, const target & target) {
    return std::min(drafter.n_ctx(), (int32_t) target.limits().n_ctx_slot);
}

static json describe_drafter(const drafter & drafter, const model_pair & models, const target & target) {
    json d         = describe_layers(drafter.layers(), models);
    d["kind"]      = drafter.kind().name;
    d["top_k"]     = drafter.top_k();
    d["lattice"]   = drafter.kind().lattice;
    d["draft_ctx"] = draft_ctx(drafter, target);
    d["no_draft"]  = target.no_draft();
    d["taps_on"]   = target.taps() ? json(ggml_backend_dev_name(target.taps()->device())) : json(nullptr);
    return d;
}

void add_drafters(json & j, const drafter_list & drafters, const model_pair & models, const target & target) {
    json all = json::array();
    for (const drafter * drafter : drafters) {
        all.push_back(describe_drafter(*drafter, models, target));
    }
    j["drafter"]  = all.empty() ? json(nullptr) : all.at(0);
    j["drafters"] = all;
}

}   // namespace dflash
