#include "llama/access.h"

#include "llama-context.h"
#include "llama-kv-cache-iswa.h"
#include "llama-kv-cache.h"
#include "llama-memory-hybrid.h"
#include "llama-model.h"

#include "ggml-backend.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <stdexcept>
#include <typeinfo>

namespace dflash {

namespace {

// What llama_context derives from a model's YaRN keys when no flag overrides them (upstream: llama-context.cpp).
void read_rope(const llama_hparams & h, drafter_weights & w) {
    const bool yarn = h.rope_scaling_type_train == LLAMA_ROPE_SCALING_TYPE_YARN;
    w.rope_base     = h.rope_freq_base_train;
    w.rope_scale    = h.rope_scaling_type_train == LLAMA_ROPE_SCALING_TYPE_NONE ? 1.0f : h.rope_freq_scale_train;
    w.ext_factor    = h.yarn_ext_factor >= 0.0f ? h.yarn_ext_factor : yarn ? 1.0f : 0.0f;
    w.attn_factor   = h.yarn_attn_factor;
    w.beta_fast     = h.yarn_beta_fast;
    w.beta_slow     = h.yarn_beta_slow;
    w.n_ctx_orig    = (int32_t) (h.n_ctx_orig_yarn ? h.n_ctx_orig_yarn : h.n_ctx_train);
    if (w.ext_factor != 0.0f) {
        const float factor = 1.0f / w.rope_scale;
        const auto  mscale = [factor](float m) { return factor <= 1.0f ? 1.0f : 0.1f * m * std::log(factor) + 1.0f; };
        w.attn_factor      = h.rope_yarn_log_mul != 0.0f ? mscale(1.0f) / mscale(h.rope_yarn_log_mul) : mscale(1.0f);
        w.attn_factor /= 1.0f + 0.1f * std::log(factor);   // ggml's rope multiplies by this again
    }
    w.attn_factor *= h.rope_attn_factor;
}

// The KV caches of a memory, none of one that derives data from cells (kinds of these classes too).
std::vector<llama_kv_cache *> kv_caches(const llama_context * ctx) {
    llama_memory_i * mem = llama_get_memory(ctx);
    if (!mem) {
        return {};
    }
    if (typeid(*mem) == typeid(llama_kv_cache)) {
        return { static_cast<llama_kv_cache *>(mem) };
    }
    if (typeid(*mem) == typeid(llama_kv_cache_iswa)) {
        const auto * iswa = static_cast<llama_kv_cache_iswa *>(mem);
        return { iswa->get_base(), iswa->get_swa() };
    }
    if (typeid(*mem) == typeid(llama_memory_hybrid)) {
        return { static_cast<llama_memory_hybrid *>(mem)->get_mem_attn() };
    }
    return {};
}

}   // namespace

drafter_weights access_drafter(const llama_model * model) {
    if (model->arch != LLM_ARCH_DFLASH) {
        throw std::runtime_error("general.architecture is '" + model->arch_name() +
                                 "', a drafter must be 'dflash': convert it with `dflash-local convert`");
    }
    const llama_hparams & h = model->hparams;
    if (h.dsv4_hc_mult > 0 || model->dspark_markov_w1) {
        throw std::runtime_error("the drafter is a DSpark model; dflash-local drafts with DFlash and DFlash 2");
    }

    drafter_weights w = {};
    w.fc              = model->fc;
    w.enc_norm        = model->output_norm_enc;
    w.out_norm        = model->output_norm;
    w.tok_embd        = model->tok_embd;
    w.output          = model->output;
    w.d2t             = model->d2t;
    w.selector_prev   = model->dflash_selector_prev;
    w.selector_next   = model->dflash_selector_next;
    w.selector_hidden = model->dflash_selector_hidden;
    w.target_layers   = model->target_layer_ids;

    w.n_embd          = (int32_t) h.n_embd;
    w.n_head          = (int32_t) h.n_head();
    w.n_head_kv       = (int32_t) h.n_head_kv();
    w.head_dim        = (int32_t) h.n_embd_head_k();
    w.n_vocab         = (int32_t) model->vocab.n_tokens();
    w.block_size      = h.dflash_block_size ? (int32_t) h.dflash_block_size : 16;   // upstream's default
    w.conv_kernel     = (int32_t) h.dflash_conv_kernel_size;
    w.conv_group      = (int32_t) h.dflash_conv_group_size;
    w.selector_rank   = (int32_t) h.dflash_selector_rank;
    w.selector_top_k  = w.selector_hidden ? (int32_t) h.dflash_selector_top_k : 0;
    w.n_swa           = h.swa_type == LLAMA_SWA_TYPE_STANDARD ? (int32_t) h.n_swa : 0;
    w.gelu            = h.llm_ffn_op == LLM_FFN_GELU;
    w.rms_eps         = h.f_norm_rms_eps;
    w.embedding_scale = h.f_embedding_scale;
    w.attention_scale = h.f_attention_scale != 0.0f ? h.f_attention_scale : 1.0f / std::sqrt((float) w.head_dim);
    w.value_scale     = h.f_attn_value_scale;
    w.logit_scale     = h.f_logit_scale;
    w.logit_softcap   = h.f_final_logit_softcapping;
    w.rope_type       = llama_model_rope_type(model);
    w.n_rot           = (int32_t) h.n_rot();
    std::copy(h.rope_sections.begin(), h.rope_sections.end(), w.rope_sections);
    read_rope(h, w);
    const auto causal = model->gguf_kv.find("dflash.attention.causal");
    // Where the checkpoint does not say, sliding-window layers are causal and full ones are not (Qwen3DFlashAttention
    // of package `dflash`).
    w.causal     = causal != model->gguf_kv.end() && causal->second == "true";
    w.causal_swa = causal == model->gguf_kv.end() || w.causal;

    if (w.head_dim != (int32_t) h.n_embd_head_v()) {
        throw std::runtime_error("dflash.attention.key_length and value_length differ, which DFlash does not have");
    }
    if (w.selector_top_k > 0 && w.d2t) {
        throw std::runtime_error(
            "the drafter has both a selector and a reduced vocabulary (d2t), which no DFlash 2 has");
    }
    for (size_t i = 0; i < (size_t) h.n_layer(); ++i) {
        const llama_layer & l = model->layers[i];
        if (l.wq_s || l.wk_s || l.wv_s || l.wo_s || l.ffn_gate_s || l.ffn_up_s || l.ffn_down_s || model->fc_s ||
            model->output_s) {
            throw std::runtime_error("the drafter's weights are NVFP4; convert it with --outtype q8_0 or f16");
        }
        if ((int32_t) h.n_head(i) != w.n_head || (int32_t) h.n_head_kv(i) != w.n_head_kv) {
            throw std::runtime_error("dflash.attention.head_count differs between layers, which DFlash does not have");
        }
        w.layers.push_back({
            l.attn_norm,
            l.wq,
            l.wk,
            l.wv,
            l.wo,
            l.attn_q_norm,
            l.attn_k_norm,
            l.attn_sinks,
            l.attn_post_norm,
            l.ffn_norm,
            l.ffn_gate,
            l.ffn_up,
            l.ffn_down,
            l.ffn_post_norm,
            l.out_scale,
            l.dflash_attn_conv_base,
            l.dflash_attn_conv_proj,
            l.dflash_ffn_conv_base,
            l.dflash_ffn_conv_proj,
            w.n_swa > 0 && h.is_swa(i),
        });
    }
    w.rope_freqs = model->layers.empty() ? nullptr : model->layers[0].rope_freqs;
    return w;
}

target_heads access_heads(const llama_model * model) {
    return { model->tok_embd, model->output, model->output_s != nullptr };
}

std::vector<ggml_backend_dev_t> access_devices(const llama_model * model) {
    std::vector<ggml_backend_dev_t> devices;
    for (const auto & d : model->devices) {
        devices.push_back(d.dev);
    }
    return devices;
}

bool access_has_tapes(const llama_model * model) { return tape_store(*model).possible(); }

state_bytes access_state_bytes(const llama_context * ctx) {
    state_bytes bytes = {};
    if (const auto * hybrid = dynamic_cast<const llama_memory_hybrid *>(llama_get_memory(ctx))) {
        const llama_memory_recurrent & mem = *hybrid->get_mem_recr();
        for (size_t il = 0; il < mem.s_l.size(); ++il) {
            bytes.state += mem.s_l[il] ? (mem.r_l[il]->nb[1] + mem.s_l[il]->nb[1]) * (1 + mem.n_rs_seq) : 0;
            bytes.tape += mem.s_l[il] && mem.can_tree() ? mem.tapes.row_bytes() * mem.tapes.capacity : 0;
        }
    }
    return bytes;
}

std::string access_arch(const llama_model * model) { return model->arch_name(); }

bool access_has_tap(const llama_model * model, int32_t layer) {
    // Read off src/models/*.cpp of the pinned llama.cpp: who fills t_layer_inp.
    static constexpr std::array taps = {
        LLM_ARCH_BAILINGMOE3,
        LLM_ARCH_DEEPSEEK4,
        LLM_ARCH_GEMMA4,
        LLM_ARCH_HUNYUAN_VL,
        LLM_ARCH_LFM2,
        LLM_ARCH_LLAMA,
        LLM_ARCH_MIMO2,
        LLM_ARCH_MINIMAX_01,
        LLM_ARCH_MINIMAX_M2,
        LLM_ARCH_MUSE_GLIMMER,
        LLM_ARCH_NANBEIGE,
        LLM_ARCH_NEMOTRON_H,
        LLM_ARCH_OPENAI_MOE,
        LLM_ARCH_QWEN3,
        LLM_ARCH_QWEN3MOE,
        LLM_ARCH_QWEN35,
        LLM_ARCH_QWEN35MOE,
        LLM_ARCH_QWEN3NEXT,
        LLM_ARCH_QWEN4EXP,
    };
    static constexpr std::array after_last = { LLM_ARCH_DEEPSEEK4, LLM_ARCH_MIMO2, LLM_ARCH_NEMOTRON_H };
    const int32_t               n_layer    = (int32_t) model->hparams.n_layer();
    const auto in = [&](const auto & list) { return std::find(list.begin(), list.end(), model->arch) != list.end(); };
    return layer >= 0 && (layer < n_layer ? in(taps) : layer == n_layer && in(after_last));
}

std::vector<cell_table> access_cells(const llama_context * ctx) {
    std::vector<cell_table> tables;
    for (const llama_kv_cache * kv : kv_caches(ctx)) {
        cell_table table = { (int32_t) kv->get_size(), {} };
        for (uint32_t s = 0; s < kv->get_n_stream(); ++s) {   // with several streams, sequence s has stream s
            const llama_kv_cells & cells = kv->get_cells((llama_seq_id) s);
            table.streams.emplace_back();
            for (uint32_t i = 0; i < cells.size(); ++i) {
                if (cells.is_empty(i)) {
                    continue;
                }
                cell c = { (int32_t) i, cells.pos_get(i), {} };
                for (llama_seq_id seq = 0; seq < (llama_seq_id) kv->get_n_seq_max(); ++seq) {
                    if (cells.seq_has(i, seq)) {
                        c.seqs.push_back(seq);
                    }
                }
                table.streams.back().push_back(c);
            }
        }
        tables.push_back(table);
    }
    return tables;
}

void access_order_cells(llama_context * ctx) {
    const char * off = std::getenv("DFLASH_CELL_ORDER");   // 0: as upstream, for measurements
    for (llama_kv_cache * kv : kv_caches(ctx)) {
        // A sliding window's own, smaller cache must use the cells of positions that no token sees any more.
        if (!(off && off[0] == '0') && kv->get_size() == kv_caches(ctx)[0]->get_size()) {
            kv->set_ordered();
        }
    }
}

int64_t access_packs(const llama_context * ctx) {
    int64_t n = 0;
    for (const llama_kv_cache * kv : kv_caches(ctx)) {
        n += kv->get_n_packed();
    }
    return n;
}

std::string access_row_variance(const llama_context * ctx) {
    const ggml_backend_reg_t cpu = ggml_backend_reg_by_name("CPU");
    const auto               is_invariant =
        cpu ? (bool (*)()) ggml_backend_reg_get_proc_address(cpu, "dflash_is_row_invariant") : nullptr;
    if (!is_invariant || !is_invariant()) {
        return "the kernels that promise it do not run on this CPU, or are switched off";
    }
    const llama_model & model   = ctx->get_model();
    const auto          caches  = kv_caches(ctx);
    const auto &        cparams = ctx->get_cparams();
    if (caches.empty() || (llama_model_is_hybrid(&model) && !tape_store(model).possible())) {
        return "the memory of the architecture " + model.arch_name() + " does not keep its cells in order";
    }
    if (!cparams.flash_attn) {   // cpu/attention/attention_no_flash.h
        const llama_hparams & hparams = model.hparams;
        for (uint32_t il = 0; il < hparams.n_layer(); ++il) {
            if (hparams.is_mla() || hparams.n_embd_head_k(il) % 16 != 0 || hparams.n_embd_head_v(il) % 16 != 0) {
                return "attention of this shape has no row-invariant kernel without flash attention";
            }
        }
    }
    for (const llama_kv_cache * kv : caches) {
        if (!kv->is_ordered() && kv->get_size() != caches[0]->get_size()) {
            return "sliding windows use their cells again in another order (--bit-exact or --swa-full gives them a "
                   "cache of full size)";
        }
        if (!kv->is_ordered() && (caches.size() > 1 || (cparams.kv_unified && cparams.n_seq_max > 1))) {
            return "slots share one KV cache, where they use cells in any order (--no-kv-unified gives each its own)";
        }
    }
    for (const auto & [name, w] : model.tensors_by_name) {
        if (ggml_nrows(w) == 1 || (w == model.tok_embd && model.output != w) || w == model.per_layer_tok_embd ||
            name.find("ssm_conv1d") != std::string::npos) {
            continue;   // elementwise, looked up, or a convolution: row by row the same
        }
        const std::string type     = ggml_backend_buft_name(ggml_backend_buffer_get_type(w->buffer));
        const bool        is_float = w->type == GGML_TYPE_F32 || w->type == GGML_TYPE_F16 || w->type == GGML_TYPE_BF16;
        if (type != "CPU_PANELS" &&
            !(is_float && w->ne[0] % 16 == 0 && ggml_backend_buffer_is_host(w->buffer) && type.rfind("CPU", 0) == 0)) {
            return "no row-invariant kernel for " + name + " (" + ggml_type_name(w->type) + " in " + type + ")";
        }
    }
    return {};
}

}   // namespace dflash
