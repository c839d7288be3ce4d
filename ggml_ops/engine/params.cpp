#include "engine/params.h"

#include "base/error.h"
#include "draft/head_part.h"
#include "files/chat_template.h"
#include "target/cache_type.h"

#include "common/common.h"

namespace dflash {

static constexpr int32_t MAX_LAYERS = 1 << 10;

dflash_engine_params resolve_params(dflash_engine_params p) {
    refuse_if(!is_set(p.model), "model is empty: give the path of a target GGUF");
    check_range("n_slots", p.n_slots, 1, 64);
    check_range("n_batch", p.n_batch, 1, 1 << 20);
    check_range("n_ubatch", p.n_ubatch, 1, 1 << 20);
    check_range("budget", p.budget, 0, DFLASH_MAX_NODES);
    refuse_if(p.draft_vocab != 0 && p.draft_vocab != ALL_TOKENS && (p.draft_vocab < 8 || p.draft_vocab > INT32_MAX),
        "draft_vocab is ", p.draft_vocab, ", must be at least 8, 0 or UINT32_MAX");
    check_range("draft_n_max", p.draft_n_max, 0, DFLASH_MAX_NODES - 1);
    check_range("draft_kind", p.draft_kind, DFLASH_KIND_AUTO, DFLASH_KIND_LOOKUP);
    refuse_if(p.draft_kind == DFLASH_KIND_DFLASH && !is_set(p.drafter),
        "draft_kind is dflash, but there is no drafter: give one, or leave draft_kind at auto");
    refuse_if(p.draft_kind == DFLASH_KIND_LOOKUP && !p.lookup,
        "draft_kind is lookup, but lookup is off: leave it on, or set draft to off");
    check_range("draft", p.draft, DFLASH_DRAFT_OFF, DFLASH_DRAFT_TREE);
    check_range("accept", p.accept, DFLASH_ACCEPT_MATCH, DFLASH_ACCEPT_BLOCK);
    check_range("n_ctx", p.n_ctx, 0, 1 << 30);
    check_range("n_ctx_slot", p.n_ctx_slot, 0, 1 << 30);
    check_range("flash_attn", p.flash_attn, -1, 1);
    check_range("cache_ram", p.cache_ram, -2, 1 << 30);
    check_range("n_checkpoints", p.n_checkpoints, 0, 1 << 10);
    check_range("checkpoint_step", p.checkpoint_step, 0, 1 << 30);
    refuse_if(!(p.slot_similarity >= 0 && p.slot_similarity <= 1), "slot_similarity is ", p.slot_similarity,
        ", must be 0..1");
    refuse_if(p.share_ctx && !p.kv_unified, "share_ctx needs kv_unified: slots with a cache each cannot share one");
    cache_type(p.type_k, "type_k", false);
    refuse_if(ggml_is_quantized(cache_type(p.type_v, "type_v", false)) && p.flash_attn == 0, "type_v is '", p.type_v,
        "', which needs flash attention: leave flash_attn on or auto, or quantize K alone");
    cache_type(p.type_k_draft, "type_k_draft", true);
    cache_type(p.type_v_draft, "type_v_draft", true);
    check_range("n_cpu_moe", p.n_cpu_moe, 0, MAX_LAYERS);
    check_range("n_cpu_ffn", p.n_cpu_ffn, 0, MAX_LAYERS);
    check_range("lookup_answers", p.lookup_answers, 0, 1 << 24);
    p.n_threads       = p.n_threads > 0 ? p.n_threads : common_cpu_get_num_math();
    p.n_threads_batch = p.n_threads_batch > 0 ? p.n_threads_batch : p.n_threads;
    check_range("n_threads", p.n_threads, 1, GGML_MAX_N_THREADS);
    check_range("n_threads_batch", p.n_threads_batch, 1, GGML_MAX_N_THREADS);
    if (is_set(p.chat_template)) {
        check_chat_template(p.chat_template);
    }
    return p;
}

}   // namespace dflash
