// The one window into llama.cpp's internals. Its source is compiled into libllama, because only ELF lets other
// libraries see them; everything else in this folder uses public headers and what is declared here.

#pragma once

#include "llama.h"

#include <cstdint>
#include <string>
#include <vector>

namespace dflash {

// Tensors of one drafter layer, in ggml order (ne0 first). Absent tensors are null.
struct drafter_layer {
    ggml_tensor * attn_norm;   // [n_embd]
    ggml_tensor * wq;          // [n_embd, n_head * head_dim]
    ggml_tensor * wk;          // [n_embd, n_head_kv * head_dim]
    ggml_tensor * wv;          // as wk; null: V is the normalized K projection
    ggml_tensor * wo;          // [n_head * head_dim, n_embd]
    ggml_tensor * q_norm;      // [head_dim]
    ggml_tensor * k_norm;
    ggml_tensor * attn_sinks;       // [n_head]
    ggml_tensor * attn_post_norm;   // [n_embd]
    ggml_tensor * ffn_norm;
    ggml_tensor * ffn_gate;   // [n_embd, n_ff]
    ggml_tensor * ffn_up;
    ggml_tensor * ffn_down;   // [n_ff, n_embd]
    ggml_tensor * ffn_post_norm;
    ggml_tensor * out_scale;        // [1]
    ggml_tensor * attn_conv_base;   // DFlash 2: [n_embd, kernel, 2]
    ggml_tensor * attn_conv_proj;   // DFlash 2: [n_embd, 2 * kernel * groups]
    ggml_tensor * ffn_conv_base;
    ggml_tensor * ffn_conv_proj;
    bool          swa;   // sliding-window attention
};

// A loaded `dflash` model as the drafter graph needs it (upstream: src/models/dflash.cpp).
struct drafter_weights {
    ggml_tensor *              fc;              // [n_taps * n_embd, n_embd]
    ggml_tensor *              enc_norm;        // [n_embd], after fc
    ggml_tensor *              out_norm;        // [n_embd]
    ggml_tensor *              tok_embd;        // [n_embd, n_vocab] or null: the target's
    ggml_tensor *              output;          // [n_embd, n_vocab_draft] or null: the target's
    ggml_tensor *              d2t;             // I64 [n_vocab_draft] or null
    ggml_tensor *              selector_prev;   // DFlash 2: [rank, n_vocab]
    ggml_tensor *              selector_next;
    ggml_tensor *              selector_hidden;   // DFlash 2: [n_embd, rank]
    ggml_tensor *              rope_freqs;        // [head_dim / 2] or null
    std::vector<drafter_layer> layers;
    std::vector<int32_t>       target_layers;   // tap i is the input of this target layer

    int32_t n_embd, n_head, n_head_kv, head_dim, n_vocab;
    int32_t block_size;
    int32_t conv_kernel, conv_group, selector_rank, selector_top_k;   // 0: DFlash
    int32_t n_swa;
    bool    causal, causal_swa;   // attention inside the block, of full and of sliding-window layers
    bool    gelu;                 // else SiLU
    float   rms_eps, embedding_scale, attention_scale, value_scale, logit_scale, logit_softcap;

    int32_t rope_type, n_rot, n_ctx_orig;
    int     rope_sections[4];
    float   rope_base, rope_scale, ext_factor, attn_factor, beta_fast, beta_slow;
};

// Throws std::runtime_error naming what the model has that the engine does not support.
LLAMA_API drafter_weights access_drafter(const llama_model * model);

struct target_heads {
    ggml_tensor * tok_embd;
    ggml_tensor * output;
    bool          scaled_output;   // NVFP4 scale beside the head
};
LLAMA_API target_heads access_heads(const llama_model * model);

// What a KV cache's cells hold. iSWA has two caches; a memory without cells has none.
struct cell {
    int32_t              index;
    int32_t              pos;
    std::vector<int32_t> seqs;
};
struct cell_table {
    int32_t                        size;
    std::vector<std::vector<cell>> streams;   // cells in use
};
LLAMA_API std::vector<cell_table> access_cells(const llama_context * ctx);
// Keep each sequence's cells in the order of its tokens, whatever else shares the cache, so that sums over cells run in
// one order: plain KV caches, hybrids' and those of sliding windows that have the full size, where the host reaches
// them (patch 0009).
LLAMA_API void access_order_cells(llama_context * ctx);
// How often a cache had to be packed for it.
LLAMA_API int64_t access_packs(const llama_context * ctx);

LLAMA_API std::vector<ggml_backend_dev_t> access_devices(const llama_model * model);
// Whether a target with recurrent states can hold trees (llama_memory_set_tree_capacity).
LLAMA_API bool access_has_tapes(const llama_model * model);
// Bytes of one sequence's recurrent state, and of what rolls it back.
struct state_bytes {
    size_t state, tape;
};
LLAMA_API state_bytes access_state_bytes(const llama_context * ctx);
LLAMA_API std::string access_arch(const llama_model * model);
// Whether the architecture's graph offers the input of layer `layer` as a tap (others would abort when asked).
LLAMA_API bool access_has_tap(const llama_model * model, int32_t layer);

// Why a row's logits may depend, in their last bits, on what else is in the pass or on the number of threads; empty if
// they do not: then drafted text is plain text bit for bit (docs/kernels.md).
LLAMA_API std::string access_row_variance(const llama_context * ctx);

}   // namespace dflash
