#include "llama/drafter_model.h"

#include "llama/drafter_tensors.h"

#include "llama-model.h"

#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>

namespace dflash {

namespace {

// A key that upstream does not know, as text.
const std::string * find_key(const llama_model & model, const char * key) {
    const auto found = model.gguf_kv.find(std::string("dflash.") + key);
    return found == model.gguf_kv.end() ? nullptr : &found->second;
}

float number(const llama_model & model, const char * key, float fallback) {
    const std::string * text = find_key(model, key);
    return text ? std::stof(*text) : fallback;
}

// What llama_context derives from a model's YaRN keys if no flag overrides them (upstream: llama-context.cpp).
// Upstream's loader of this architecture does not read the keys of the ramp.
void read_rope(const llama_model & model, drafter_model & m) {
    const llama_hparams & h    = model.hparams;
    const bool            yarn = h.rope_scaling_type_train == LLAMA_ROPE_SCALING_TYPE_YARN;
    m.rope_type                = llama_model_rope_type(&model);
    m.n_rot                    = (int32_t) h.n_rot();
    std::copy(h.rope_sections.begin(), h.rope_sections.end(), m.rope_sections);
    m.rope_freqs  = model.layers.empty() ? nullptr : model.layers[0].rope_freqs;
    m.rope_base   = h.rope_freq_base_train;
    m.rope_scale  = h.rope_scaling_type_train == LLAMA_ROPE_SCALING_TYPE_NONE ? 1.0f : h.rope_freq_scale_train;
    m.ext_factor  = number(model, "rope.scaling.yarn_ext_factor", yarn ? 1.0f : 0.0f);
    m.attn_factor = h.yarn_attn_factor;
    m.beta_fast   = number(model, "rope.scaling.yarn_beta_fast", h.yarn_beta_fast);
    m.beta_slow   = number(model, "rope.scaling.yarn_beta_slow", h.yarn_beta_slow);
    m.n_ctx_orig  = (int32_t) (h.n_ctx_orig_yarn ? h.n_ctx_orig_yarn : h.n_ctx_train);
    if (m.ext_factor != 0.0f) {
        const float factor = 1.0f / m.rope_scale;
        const auto  mscale = [factor](
                                float mul) { return factor <= 1.0f ? 1.0f : 0.1f * mul * std::log(factor) + 1.0f; };
        m.attn_factor = h.rope_yarn_log_mul != 0.0f ? mscale(1.0f) / mscale(h.rope_yarn_log_mul) : mscale(1.0f);
        m.attn_factor /= 1.0f + 0.1f * std::log(factor);   // cancels the same factor in ggml's rope
    }
    m.attn_factor *= h.rope_attn_factor;
    m.tap_rope_base = number(model, "backbone_rotary_base", m.rope_base);
}

const drafter_kind & find_kind(const llama_model & model) {
    const auto has    = [&](const char * name) { return drafter_tensor(model, name) != nullptr; };
    const auto refuse = [](const char * tensor, const std::string & why) {
        throw std::runtime_error(std::string("the drafter's tensor '") + tensor + "' " + why);
    };
    return find_drafter_kind(has, refuse);
}

void read_hparams(const llama_model & model, drafter_model & m) {
    const llama_hparams & h = model.hparams;

    m.n_embd          = (int32_t) h.n_embd;
    m.n_head          = (int32_t) h.n_head();
    m.n_head_kv       = (int32_t) h.n_head_kv();
    m.head_dim        = (int32_t) h.n_embd_head_k();
    m.n_vocab         = (int32_t) model.vocab.n_tokens();
    m.block_size      = h.dflash_block_size ? (int32_t) h.dflash_block_size : 16;   // upstream's default
    m.conv_kernel     = (int32_t) h.dflash_conv_kernel_size;
    m.conv_group      = (int32_t) h.dflash_conv_group_size;
    m.selector_rank   = (int32_t) h.dflash_selector_rank;
    m.selector_top_k  = model.dflash_selector_hidden ? (int32_t) h.dflash_selector_top_k : 0;
    m.n_swa           = h.swa_type == LLAMA_SWA_TYPE_STANDARD ? (int32_t) h.n_swa : 0;
    m.gelu            = h.llm_ffn_op == LLM_FFN_GELU;
    m.rms_eps         = h.f_norm_rms_eps;
    m.embedding_scale = h.f_embedding_scale;
    m.attention_scale = h.f_attention_scale != 0.0f ? h.f_attention_scale : 1.0f / std::sqrt((float) m.head_dim);
    m.value_scale     = h.f_attn_value_scale;
    m.logit_scale     = h.f_logit_scale;
    m.logit_softcap   = h.f_final_logit_softcapping;
    // If the checkpoint does not say, sliding-window layers are causal and full ones are not (Qwen3DFlashAttention of
    // package `dflash`).
    const std::string * causal = find_key(model, "attention.causal");
    m.causal                   = causal && *causal == "true";
    m.causal_swa               = !causal || m.causal;
    const std::string * limit  = find_key(model, "selector_vocab_size");
    m.n_candidates             = limit ? std::min(m.n_vocab, (int32_t) std::stol(*limit)) : m.n_vocab;
    m.markov_rank              = model.dspark_markov_w1 ? (int32_t) model.dspark_markov_w1->ne[0] : 0;
    const std::string * prefix = find_key(model, "domino_prefix_length");
    m.domino_prefix            = prefix ? std::stoi(*prefix) : 0;
    const std::string * anchor = find_key(model, "sample_from_anchor");
    m.anchor_first             = anchor ? *anchor == "true" : m.kind->anchor_first;
}

// By their names after "lilicorr_".
constexpr std::pair<const char *, affine correlator::*> AFFINES[] = { { "token", &correlator::token },
    { "hidden", &correlator::hidden }, { "feature_norm", &correlator::feature_norm },
    { "feature_up", &correlator::feature_up }, { "feature_down", &correlator::feature_down },
    { "context", &correlator::context }, { "factor", &correlator::factor }, { "out", &correlator::out },
    { "in", &correlator::in }, { "start", &correlator::start } };

constexpr std::pair<const char *, ggml_tensor * correlator::*> TENSORS[] = {
    { "position_embd", &correlator::position_embd }, { "rank_embd", &correlator::rank_embd },
    { "distance_bias", &correlator::distance_bias }, { "same_bias", &correlator::same_bias },
    { "output_norm.weight", &correlator::output_norm }, { "context_norm.weight", &correlator::context_norm },
    { "factor_context.weight", &correlator::factor_context }, { "factor_product.weight", &correlator::factor_product }
};

correlator read_lilicorr(const llama_model & model) {
    const auto tensor = [&](const std::string & name) { return drafter_tensor(model, "lilicorr_" + name); };
    const auto both   = [&](const std::string & name) -> affine {
        return { tensor(name + ".weight"), tensor(name + ".bias") };
    };
    correlator head = {};
    head.top_k      = (int32_t) number(model, "lilicorr_top_k", 0);
    head.n_head     = (int32_t) number(model, "lilicorr_head_count", 0);
    head.scale      = number(model, "lilicorr_logit_scale", 1.0f);
    head.epsilon    = number(model, "lilicorr_vector_epsilon", 1e-4f);
    for (const auto & [name, member] : AFFINES) {
        head.*member = both(name);
    }
    for (const auto & [name, member] : TENSORS) {
        head.*member = tensor(name);
    }
    const auto n_layer = (int32_t) number(model, "lilicorr_block_count", 0);
    for (int32_t layer = 0; layer < n_layer; ++layer) {
        const std::string blk = std::string("blk.").append(std::to_string(layer)).append(".");
        head.layers.push_back({ tensor(blk + "attn_norm.weight"), both(blk + "attn_qkv"), both(blk + "attn_output"),
            tensor(blk + "ffn_norm.weight"), both(blk + "ffn_up"), both(blk + "ffn_down") });
    }
    return head;
}

// Of a layer, those that upstream does not have.
constexpr std::pair<const char *, ggml_tensor * drafter_layer::*> LAYER_EXTRAS[] = {
    { "attn_q.bias", &drafter_layer::bq }, { "attn_k.bias", &drafter_layer::bk }, { "attn_v.bias", &drafter_layer::bv },
    { "attn_output.bias", &drafter_layer::bo }, { "attn_k_ctx.weight", &drafter_layer::wk_ctx },
    { "attn_v_ctx.weight", &drafter_layer::wv_ctx }, { "attn_k_ctx.bias", &drafter_layer::bk_ctx },
    { "attn_v_ctx.bias", &drafter_layer::bv_ctx }, { "attn_conv_base", &drafter_layer::attn_conv_base },
    { "attn_conv_proj.weight", &drafter_layer::attn_conv_proj }, { "ffn_conv_base", &drafter_layer::ffn_conv_base },
    { "ffn_conv_proj.weight", &drafter_layer::ffn_conv_proj }
};

drafter_layer read_layer(const llama_model & model, uint32_t il) {
    const llama_layer & from = model.layers[il];
    const std::string   blk  = std::string("blk.").append(std::to_string(il)).append(".");
    drafter_layer       to   = {};
    to.attn_norm             = from.attn_norm;
    to.wq                    = from.wq;
    to.wk                    = from.wk;
    to.wv                    = from.wv;
    to.wo                    = from.wo;
    to.q_norm                = from.attn_q_norm;
    to.k_norm                = from.attn_k_norm;
    to.attn_sinks            = from.attn_sinks;
    to.attn_post_norm        = from.attn_post_norm;
    to.ffn_norm              = from.ffn_norm;
    to.ffn_gate              = from.ffn_gate;
    to.ffn_up                = from.ffn_up;
    to.ffn_down              = from.ffn_down;
    to.ffn_post_norm         = from.ffn_post_norm;
    to.out_scale             = from.out_scale;
    for (const auto & [name, member] : LAYER_EXTRAS) {
        to.*member = drafter_tensor(model, blk + name);
    }
    return to;
}

void read_tensors(const llama_model & model, drafter_model & m) {
    m.fc              = model.fc;
    m.layer_fusion    = drafter_tensor(model, "layer_fusion.weight");
    m.enc_norm        = model.output_norm_enc;
    m.out_norm        = model.output_norm;
    m.tok_embd        = model.tok_embd;
    m.output          = model.output;
    m.d2t             = model.d2t;
    m.selector_prev   = model.dflash_selector_prev;
    m.selector_next   = model.dflash_selector_next;
    m.selector_hidden = model.dflash_selector_hidden;
    m.mask_embd       = drafter_tensor(model, "mask_embd.weight");
    m.markov_prev     = model.dspark_markov_w1;
    m.markov_next     = model.dspark_markov_w2;
    m.confidence      = model.dspark_conf_proj;
    m.confidence_bias = model.dspark_conf_proj_b;
    m.domino_ih       = drafter_tensor(model, "domino_gru_ih.weight");
    m.domino_hh       = drafter_tensor(model, "domino_gru_hh.weight");
    m.domino_hidden   = drafter_tensor(model, "domino_hidden.weight");
    m.domino_state    = drafter_tensor(model, "domino_state.weight");
    m.domino_out      = drafter_tensor(model, "domino_out.weight");
    m.lilicorr        = m.kind->id == drafter_kind::LILICORR ? read_lilicorr(model) : correlator();
    m.target_layers   = model.target_layer_ids;
    for (uint32_t il = 0; il < model.hparams.n_layer(); ++il) {
        m.layers.push_back(read_layer(model, il));
        m.layers.back().swa = m.n_swa > 0 && model.hparams.is_swa(il);
    }
}

// Throws for models that llama.cpp loads but the drafter's graph would compute wrongly, beyond what check_gguf()
// refuses.
void refuse_unsupported(const llama_model & model, const drafter_model & m) {
    const llama_hparams & h = model.hparams;
    if (m.is_mrope() && m.tap_rope_base != m.rope_base) {
        throw std::runtime_error(
            "the drafter has dflash.backbone_rotary_base and M-RoPE (dflash.rope.dimension_sections), which no drafter "
            "has together");
    }
    for (uint32_t il = 0; il < h.n_layer(); ++il) {
        const llama_layer & l = model.layers[il];
        if (l.wq_s || l.wk_s || l.wv_s || l.wo_s || l.ffn_gate_s || l.ffn_up_s || l.ffn_down_s || model.fc_s ||
            model.output_s || model.dspark_markov_w2_s) {
            throw std::runtime_error("the drafter's weights are NVFP4; convert it with --outtype q8_0 or f16");
        }
    }
}

}   // namespace

drafter_model access_drafter(const llama_model * model) {
    if (model->arch != LLM_ARCH_DFLASH) {
        throw std::runtime_error("general.architecture is '" + model->arch_name() +
                                 "', a drafter must be 'dflash'; rewrite the file: "
                                 "dflash-local convert DRAFTER.gguf --target TARGET.gguf");
    }
    if (model->hparams.dsv4_hc_mult > 0) {
        throw std::runtime_error("the drafter's layers are DeepSeek-V4's, which dflash-local does not run");
    }
    drafter_model m = {};
    m.kind          = &find_kind(*model);
    read_hparams(*model, m);
    read_rope(*model, m);
    read_tensors(*model, m);
    refuse_unsupported(*model, m);
    return m;
}

}   // namespace dflash
