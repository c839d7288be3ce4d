#include "llama/access.h"

#include "llama-context.h"
#include "llama-kv-cache.h"
#include "llama-memory-hybrid.h"
#include "llama-model.h"
#include "llama-vocab.h"
#include "llama/devices.h"
#include "llama/memory_parts.h"

#include "ggml-backend.h"

#include <algorithm>
#include <array>
#include <cstdlib>

namespace dflash {

namespace {

// Architectures whose graphs fill t_layer_inp (src/models/*.cpp of the pinned llama.cpp), or begin each layer with the
// norm before its attention (layer_input.h): in their own graph or one that they share (`using graph` in models.h).
// tests/test_taps.py compares both lists with that source; tests/taps compares the taps with an eval callback.
constexpr std::array TAPPED = {
    LLM_ARCH_AFMOE,
    LLM_ARCH_APERTUS,
    LLM_ARCH_ARCEE,
    LLM_ARCH_ARCTIC,
    LLM_ARCH_BAICHUAN,
    LLM_ARCH_BAILINGMOE,
    LLM_ARCH_BAILINGMOE2,
    LLM_ARCH_BAILINGMOE3,
    LLM_ARCH_BITNET,
    LLM_ARCH_CHATGLM,
    LLM_ARCH_CODESHELL,
    LLM_ARCH_COHERE2,
    LLM_ARCH_COHERE2MOE,
    LLM_ARCH_COMMAND_R,
    LLM_ARCH_DBRX,
    LLM_ARCH_DECI,
    LLM_ARCH_DEEPSEEK,
    LLM_ARCH_DEEPSEEK2,
    LLM_ARCH_DEEPSEEK32,
    LLM_ARCH_DEEPSEEK4,
    LLM_ARCH_DOTS1,
    LLM_ARCH_ERNIE4_5,
    LLM_ARCH_ERNIE4_5_MOE,
    LLM_ARCH_EXAONE,
    LLM_ARCH_EXAONE_MOE,
    LLM_ARCH_FALCON,
    LLM_ARCH_GEMMA,
    LLM_ARCH_GEMMA2,
    LLM_ARCH_GEMMA3,
    LLM_ARCH_GEMMA4,
    LLM_ARCH_GLM4,
    LLM_ARCH_GLM4_MOE,
    LLM_ARCH_GLM5_NEXT,
    LLM_ARCH_GLM_DSA,
    LLM_ARCH_GPTNEOX,
    LLM_ARCH_GRANITE,
    LLM_ARCH_GRANITE_MOE,
    LLM_ARCH_GRANITE_SWA,
    LLM_ARCH_GROK,
    LLM_ARCH_GROVEMOE,
    LLM_ARCH_HUNYUAN_DENSE,
    LLM_ARCH_HUNYUAN_MOE,
    LLM_ARCH_HUNYUAN_VL,
    LLM_ARCH_HY_V3,
    LLM_ARCH_INTERNLM2,
    LLM_ARCH_JAIS,
    LLM_ARCH_JAIS2,
    LLM_ARCH_LAGUNA,
    LLM_ARCH_LFM2,
    LLM_ARCH_LFM2MOE,
    LLM_ARCH_LLAMA,
    LLM_ARCH_LLAMA4,
    LLM_ARCH_MAINCODER,
    LLM_ARCH_MAPLE,
    LLM_ARCH_MELLUM,
    LLM_ARCH_MIMO2,
    LLM_ARCH_MINICPM,
    LLM_ARCH_MINIMAX_01,
    LLM_ARCH_MINIMAX_M2,
    LLM_ARCH_MINIMAX_M3,
    LLM_ARCH_MISTRAL3,
    LLM_ARCH_MISTRAL4,
    LLM_ARCH_MUSE_GLIMMER,
    LLM_ARCH_NANBEIGE,
    LLM_ARCH_NEMOTRON,
    LLM_ARCH_NEMOTRON_H,
    LLM_ARCH_NEMOTRON_H_MOE,
    LLM_ARCH_OLMOE,
    LLM_ARCH_OPENAI_MOE,
    LLM_ARCH_OPENELM,
    LLM_ARCH_ORION,
    LLM_ARCH_PADDLEOCR,
    LLM_ARCH_PANGU_EMBED,
    LLM_ARCH_PHI2,
    LLM_ARCH_PHI3,
    LLM_ARCH_PHIMOE,
    LLM_ARCH_PLAMO,
    LLM_ARCH_PLAMO3,
    LLM_ARCH_QWEN,
    LLM_ARCH_QWEN2,
    LLM_ARCH_QWEN2MOE,
    LLM_ARCH_QWEN2VL,
    LLM_ARCH_QWEN3,
    LLM_ARCH_QWEN35,
    LLM_ARCH_QWEN35MOE,
    LLM_ARCH_QWEN3MOE,
    LLM_ARCH_QWEN3NEXT,
    LLM_ARCH_QWEN3VL,
    LLM_ARCH_QWEN3VLMOE,
    LLM_ARCH_QWEN4EXP,
    LLM_ARCH_REFACT,
    LLM_ARCH_SEED_OSS,
    LLM_ARCH_SMALLTHINKER,
    LLM_ARCH_SMOLLM3,
    LLM_ARCH_SPARK2_5,
    LLM_ARCH_STABLELM,
    LLM_ARCH_STARCODER2,
    LLM_ARCH_STEP35,
    LLM_ARCH_XVERSE,
};
// Those that also fill t_layer_inp[n_layer], the last layer's output.
constexpr std::array TAPPED_TO_THE_END = {
    LLM_ARCH_DEEPSEEK4,
    LLM_ARCH_MIMO2,
    LLM_ARCH_NEMOTRON_H,
    LLM_ARCH_NEMOTRON_H_MOE,
};

// The KV caches of a memory; none where they are not known.
std::vector<llama_kv_cache *> kv_caches(const llama_context * ctx) {
    const memory_parts            parts(llama_get_memory(ctx));
    std::vector<llama_kv_cache *> caches = { parts.kv, parts.window };
    caches.erase(std::remove(caches.begin(), caches.end(), nullptr), caches.end());
    return caches;
}

}   // namespace

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

std::map<ggml_backend_buffer_type_t, size_t> access_weights(const llama_model * model) {
    return model->memory_breakdown();
}

void access_plan_contexts(llama_model * model) { model->hparams.no_alloc = false; }

bool access_on_devices(const llama_model * model) {
    size_t on_host = 0;
    for (const auto & [type, bytes] : model->memory_breakdown()) {
        on_host += is_cpu(ggml_backend_buft_get_device(type)) || ggml_backend_buft_is_host(type) ? bytes : 0;
    }
    // alignment, and tensors that no pass reads
    constexpr size_t    LITTLE  = 1 << 16;
    const ggml_tensor * table   = model->tok_embd;
    const bool          is_away = !table || (table->buffer && !ggml_backend_buffer_is_host(table->buffer));
    return on_host <= (is_away ? 0 : ggml_nbytes(table)) + LITTLE;
}

ggml_backend_dev_t access_output_device(const llama_model * model) { return model->dev_output(); }

bool access_has_tapes(const llama_model * model) { return tape_store(*model).possible(); }

state_bytes access_state_bytes(const llama_context * ctx) {
    state_bytes bytes = {};
    if (const auto * hybrid = dynamic_cast<const llama_memory_hybrid *>(llama_get_memory(ctx))) {
        const llama_memory_recurrent & mem = *hybrid->get_mem_recr();
        for (size_t il = 0; il < mem.s_l.size(); ++il) {
            bytes.state += mem.s_l[il] ? (mem.r_l[il]->nb[1] + mem.s_l[il]->nb[1]) * (1 + mem.n_rs_seq) : 0;
            bytes.tape += mem.s_l[il] ? mem.tapes.row_bytes() * mem.tapes.capacity : 0;
        }
    }
    return bytes;
}

std::map<ggml_backend_buffer_type_t, size_t> access_tapes(const llama_context * ctx) {
    std::map<ggml_backend_buffer_type_t, size_t> bytes;
    if (const auto * hybrid = dynamic_cast<const llama_memory_hybrid *>(llama_get_memory(ctx))) {
        for (const ggml_tensor * tape : hybrid->get_mem_recr()->tapes.layers) {
            if (tape) {
                bytes[ggml_backend_buffer_get_type(tape->buffer)] += ggml_nbytes(tape);
            }
        }
    }
    return bytes;
}

void access_reserve(llama_context * ctx) { ctx->sched_reserve(); }

std::string access_arch(const llama_model * model) { return model->arch_name(); }

bool access_has_tap(const llama_model * model, int32_t layer) {
    const int32_t n_layer = (int32_t) model->hparams.n_layer();
    const auto    in      = [&](const auto & archs) {
        return std::find(archs.begin(), archs.end(), model->arch) != archs.end();
    };
    if (layer < 0 || layer >= n_layer) {
        return layer == n_layer && in(TAPPED_TO_THE_END);
    }
    const bool begins_without_norm = model->arch == LLM_ARCH_DECI && !model->layers[layer].attn_norm;
    return in(TAPPED) && !begins_without_norm;
}

tapped_archs access_tapped_archs() {
    const auto names = [](const auto & archs) {
        std::vector<std::string> all;
        for (const llm_arch arch : archs) {
            all.push_back(llm_arch_name(arch));
        }
        return all;
    };
    return { names(TAPPED), names(TAPPED_TO_THE_END) };
}

std::vector<cell_table> access_cells(const llama_context * ctx) {
    std::vector<cell_table> tables;
    for (const llama_kv_cache * kv : kv_caches(ctx)) {
        cell_table table = { (int32_t) kv->get_size(), {} };
        for (uint32_t s = 0; s < kv->get_n_stream(); ++s) {   // with several streams, stream s is sequence s
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
        // The smaller cache of a sliding window has to reuse the cells of positions that no token sees any more.
        if (!(off && off[0] == '0') && kv->get_size() == kv_caches(ctx)[0]->get_size()) {
            kv->order.enable();
        }
    }
}

int64_t access_packs(const llama_context * ctx) {
    int64_t n = 0;
    for (const llama_kv_cache * kv : kv_caches(ctx)) {
        n += kv->order.n_packed;
    }
    return n;
}

bool access_needs_streams(const llama_model * model) { return model->arch == LLM_ARCH_MINIMAX_M3; }

void access_limit_sequences(llama_context * ctx, uint32_t n_ctx_seq) {
    auto & cparams    = const_cast<llama_cparams &>(ctx->get_cparams());   // no graph has been built for use yet
    cparams.n_ctx_seq = std::min(cparams.n_ctx_seq, n_ctx_seq);
}

std::string access_row_variance(const llama_context * ctx) {
    const auto is_invariant = backend_function<bool()>(ggml_backend_reg_by_name("CPU"), "dflash_is_row_invariant");
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
        if (!kv->order.enabled() && kv->get_size() != caches[0]->get_size()) {
            return "sliding windows use their cells again in another order (--bit-exact or --swa-full gives them a "
                   "cache of full size)";
        }
        if (!kv->order.enabled() && (caches.size() > 1 || (cparams.kv_unified && cparams.n_seq_max > 1))) {
            return "slots share one KV cache, where they use cells in any order (--no-kv-unified gives each its own)";
        }
    }
    for (const auto & [name, w] : model.tensors_by_name) {
        if (ggml_nrows(w) == 1 || (w == model.tok_embd && model.output != w) || w == model.per_layer_tok_embd ||
            name.find("ssm_conv1d") != std::string::npos) {
            continue;   // elementwise, looked up, or a convolution: row by row anyway
        }
        const std::string type     = ggml_backend_buft_name(ggml_backend_buffer_get_type(w->buffer));
        const bool        is_float = w->type == GGML_TYPE_F32 || w->type == GGML_TYPE_F16 || w->type == GGML_TYPE_BF16;
        if (type != "CPU_PANELS" &&
            !(is_float && w->ne[0] % 16 == 0 && ggml_backend_buffer_is_host(w->buffer) && type.rfind("CPU", 0) == 0)) {
            std::string why = "no row-invariant kernel for ";
            return why.append(name)
                .append(" (")
                .append(ggml_type_name(w->type))
                .append(" in ")
                .append(type)
                .append(")");
        }
    }
    return {};
}

// Other vocabularies have their own splitters in llama.cpp's unicode.cpp (unicode_regex_split_custom), or none.
splitter access_splitter(const llama_vocab * vocab) {
    if (vocab->get_type() != LLAMA_VOCAB_TYPE_BPE) {
        return splitter::any_text;
    }
    switch (vocab->get_pre_type()) {
        case LLAMA_VOCAB_PRE_TYPE_LLAMA3:
        case LLAMA_VOCAB_PRE_TYPE_DBRX:
        case LLAMA_VOCAB_PRE_TYPE_SMAUG:
        case LLAMA_VOCAB_PRE_TYPE_CHATGLM4:
        case LLAMA_VOCAB_PRE_TYPE_GPT2:
        case LLAMA_VOCAB_PRE_TYPE_MPT:
        case LLAMA_VOCAB_PRE_TYPE_OLMO:
        case LLAMA_VOCAB_PRE_TYPE_JAIS:
        case LLAMA_VOCAB_PRE_TYPE_TRILLION:
        case LLAMA_VOCAB_PRE_TYPE_GRANITE_DOCLING:
        case LLAMA_VOCAB_PRE_TYPE_STABLELM2:
        case LLAMA_VOCAB_PRE_TYPE_QWEN2:
        case LLAMA_VOCAB_PRE_TYPE_HUNYUAN:
        case LLAMA_VOCAB_PRE_TYPE_SOLAR_OPEN:
        case LLAMA_VOCAB_PRE_TYPE_QWEN35:
        case LLAMA_VOCAB_PRE_TYPE_KIMI_K2:
        case LLAMA_VOCAB_PRE_TYPE_GROK_2:
        case LLAMA_VOCAB_PRE_TYPE_LAGUNA:
        case LLAMA_VOCAB_PRE_TYPE_GEMMA4:
        case LLAMA_VOCAB_PRE_TYPE_SARVAM_MOE: return splitter::any_text;
        case LLAMA_VOCAB_PRE_TYPE_DEEPSEEK_LLM:                           // "\\s+$"
        case LLAMA_VOCAB_PRE_TYPE_SUPERBPE: return splitter::quadratic;   // "(?=(\\d{3})+(?!\\d))"
        default: return splitter::recursive;
    }
}

}   // namespace dflash
