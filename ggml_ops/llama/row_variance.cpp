// The rule of --bit-exact: what lets a row depend on the rest of its pass.

#include "llama/access.h"

#include "llama-context.h"
#include "llama-kv-cache.h"
#include "llama-model.h"
#include "llama/devices.h"
#include "llama/memory_parts.h"
#include "llama/state_tape.h"

namespace dflash {

// Why products with the weights are not invariant.
static std::string weight_variance(const llama_model & model) {
    for (const auto & [name, w] : model.tensors_by_name) {
        if (ggml_nrows(w) == 1 || (w == model.tok_embd && model.output != w) || w == model.per_layer_tok_embd ||
            name.find("ssm_conv1d") != std::string::npos) {
            continue;   // elementwise, looked up, or a convolution: row by row anyway
        }
        const std::string type     = ggml_backend_buft_name(ggml_backend_buffer_get_type(w->buffer));
        const bool        is_float = w->type == GGML_TYPE_F32 || w->type == GGML_TYPE_F16 || w->type == GGML_TYPE_BF16;
        // Of a matrix for each head (MLA's), ggml's product has no vector code for f32, but has for the others.
        const bool served = w->ne[2] == 1 || w->type == GGML_TYPE_F32 || name.find("exps") != std::string::npos;
        if (type != "CPU_PANELS" && !(is_float && served && w->ne[0] % 16 == 0 &&
                                        ggml_backend_buffer_is_host(w->buffer) && type.rfind("CPU", 0) == 0)) {
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

std::string access_row_variance(const llama_context * ctx) {
    const auto is_invariant = backend_function<bool()>(ggml_backend_reg_by_name("CPU"), "dflash_is_row_invariant");
    if (!is_invariant || !is_invariant()) {
        return "the kernels that promise it do not run on this CPU, or are switched off";
    }
    const llama_model & model   = ctx->get_model();
    const auto          caches  = memory_parts(llama_get_memory(ctx)).caches();
    const auto &        cparams = ctx->get_cparams();
    if (caches.empty() || (llama_model_is_hybrid(&model) && !tape_store(model).possible())) {
        return "the memory of the architecture " + model.arch_name() + " does not keep its cells in order";
    }
    const llama_hparams & hparams = model.hparams;
    if (!cparams.flash_attn && hparams.is_mla()) {   // cpu/attention/attention_no_flash.h
        return "attention of this shape has no row-invariant kernel without flash attention";
    }
    for (uint32_t il = 0; il < hparams.n_layer(); ++il) {
        if (hparams.n_embd_head_k(il) % 16 != 0 || hparams.n_embd_head_v(il) % 16 != 0) {
            return "attention heads whose size is no multiple of 16 have no row-invariant kernel";
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
    return weight_variance(model);
}

}   // namespace dflash
