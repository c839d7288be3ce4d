// A drafter's hyper-parameters and tensors, from a loaded `dflash` model by the names in its GGUF (upstream:
// src/models/dflash.cpp). Compiled into libllama, see access.h.

#pragma once

#include "llama/drafter_kind.h"

#include "llama.h"

#include "ggml.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace dflash {

// Tensors of one layer, in ggml order (ne0 first). Absent tensors are null.
struct drafter_layer {
    ggml_tensor * attn_norm;           // [n_embd]
    ggml_tensor * wq;                  // [n_embd, n_head * head_dim]
    ggml_tensor * wk;                  // [n_embd, n_head_kv * head_dim]
    ggml_tensor * wv;                  // as wk; null: V is the normalized K projection
    ggml_tensor * wo;                  // [n_head * head_dim, n_embd]
    ggml_tensor * bq, *bk, *bv, *bo;   // biases of the products
    ggml_tensor * wk_ctx, *wv_ctx;     // DFlare: K and V of context rows, like wk and wv; null: use wk and wv
    ggml_tensor * bk_ctx, *bv_ctx;
    ggml_tensor * q_norm;           // [head_dim]
    ggml_tensor * k_norm;           // [head_dim]
    ggml_tensor * attn_sinks;       // [n_head]
    ggml_tensor * attn_post_norm;   // [n_embd]
    ggml_tensor * ffn_norm;         // [n_embd]
    ggml_tensor * ffn_gate;         // [n_embd, n_ff]
    ggml_tensor * ffn_up;           // [n_embd, n_ff]
    ggml_tensor * ffn_down;         // [n_ff, n_embd]
    ggml_tensor * ffn_post_norm;    // [n_embd]
    ggml_tensor * out_scale;        // [1]
    ggml_tensor * attn_conv_base;   // DFlash 2, LiliCorr: [n_embd, kernel, 2]
    ggml_tensor * attn_conv_proj;   // [n_embd, 2 * kernel * groups]
    ggml_tensor * ffn_conv_base;    // as those of attention
    ggml_tensor * ffn_conv_proj;
    bool          swa;   // sliding-window attention
};

// weight * x + bias
struct affine {
    ggml_tensor *weight, *bias;
};

// LiliCorr's network, see draft/lilicorr.h. H: its width.
struct correlator_layer {
    ggml_tensor * attn_norm;   // [H]
    affine        qkv;         // H -> queries, keys, values
    affine        out;         // H -> H
    ggml_tensor * ffn_norm;    // [H]
    affine        up, down;    // H -> n_ff -> H
};

struct correlator {
    int32_t       top_k, n_head;              // candidates of a position; heads of its attention
    float         scale, epsilon;             // of scores; of the length of vectors
    affine        token;                      // n_embd -> H, of a candidate's embedding; null: H is n_embd
    affine        hidden;                     // n_embd -> H, of the row that proposes it
    affine        feature_norm;               // [5], of what its probability and rank say
    affine        feature_up, feature_down;   // 5 -> H -> H
    ggml_tensor * position_embd;              // [H, block_size - 1]
    ggml_tensor * rank_embd;                  // [H, top_k]
    ggml_tensor * distance_bias;              // [2 * block_size - 1, n_head]: of positions, from 1 - block_size on
    ggml_tensor * same_bias;                  // [n_head]: beside it, of one and the same position
    ggml_tensor * output_norm;                // [H]
    affine        context;                    // n_embd -> H, of a context row
    ggml_tensor * context_norm;               // [H]
    affine        factor;                     // H -> H
    ggml_tensor * factor_context, *factor_product;   // [H, H]
    affine        out, in, start;                    // H -> as many as the vectors that are compared have

    std::vector<correlator_layer> layers;
};

struct drafter_model {
    static constexpr int32_t MAX_LENGTH = 64;   // nodes of a path

    const drafter_kind * kind;

    // hyper-parameters; a scale of 0 means that there is none
    int32_t n_embd, n_head, n_head_kv, head_dim, n_vocab;
    int32_t block_size;     // rows of the longest block, including the anchor's
    bool    anchor_first;   // rows propose the token after their own; else that of their own place, the anchor none
    int32_t conv_kernel;    // DFlash 2, LiliCorr: size of the convolutions, and channels per dynamic weight
    int32_t conv_group;
    int32_t selector_rank, selector_top_k;   // DFlash 2, else 0
    int32_t n_candidates;                    // without d2t: only tokens below it are proposed
    int32_t markov_rank;                     // DSpark, else 0
    int32_t domino_prefix;                   // Domino: first drafted positions that are not corrected
    int32_t n_swa;                           // window in positions, 0: none
    bool    causal, causal_swa;              // attention inside the block, of full and of sliding-window layers
    bool    gelu;                            // else SiLU
    float   rms_eps, embedding_scale, attention_scale, value_scale, logit_scale, logit_softcap;

    // rotation: arguments of ggml_rope_ext()
    int32_t rope_type, n_rot, n_ctx_orig;
    int     rope_sections[4];   // M-RoPE
    float   rope_base, rope_scale, ext_factor, attn_factor, beta_fast, beta_slow;
    float   tap_rope_base;   // of the keys of tap rows; most drafters rotate all rows alike

    // tensors
    ggml_tensor * fc;                // [n_taps * n_embd, n_embd] or null: there is layer_fusion
    ggml_tensor * layer_fusion;      // DFlare: [n_taps, n_layer], the share of each tap in each layer's context rows
    ggml_tensor * enc_norm;          // [n_embd], after fc or layer_fusion
    ggml_tensor * out_norm;          // [n_embd]
    ggml_tensor * tok_embd;          // [n_embd, n_vocab] or null: the target's
    ggml_tensor * output;            // [n_embd, n_vocab_draft] or null: the target's
    ggml_tensor * d2t;               // I64 [n_vocab_draft]: target token of each draft token; null: the same
    ggml_tensor * target_ids;        // the same, as graphs look it up: I32 [1, n_vocab_draft] (draft/target_ids.h)
    ggml_tensor * selector_prev;     // DFlash 2: [rank, n_vocab]
    ggml_tensor * selector_next;     // DFlash 2: [rank, n_vocab]
    ggml_tensor * selector_hidden;   // DFlash 2: [n_embd, rank]
    ggml_tensor * mask_embd;         // [n_embd]: embedding of the mask token; null: its row of tok_embd
    ggml_tensor * markov_prev;       // DSpark: [rank, n_vocab]
    ggml_tensor * markov_next;       // DSpark: [rank, n_vocab_draft]
    ggml_tensor * confidence;        // DSpark: [n_embd + rank, 1] or null
    ggml_tensor * confidence_bias;   // DSpark: [1] or null
    ggml_tensor * domino_ih;         // Domino: [n_embd, 3 * size], the recurrent cell's gates from a token: r, z, n
    ggml_tensor * domino_hh;         // Domino: [size, 3 * size], the same from the state before
    ggml_tensor * domino_hidden;     // Domino: [n_embd, width]
    ggml_tensor * domino_state;      // Domino: [size, width]
    ggml_tensor * domino_out;        // Domino: [width, n_vocab]
    ggml_tensor * rope_freqs;        // [head_dim / 2] or null
    correlator    lilicorr;          // LiliCorr, else empty

    std::vector<drafter_layer> layers;
    std::vector<int32_t>       target_layers;   // tap i is the input of this layer of the target

    int32_t tap_size() const { return (int32_t) target_layers.size() * n_embd; }
    // Logits per row: all draft tokens, or the candidates.
    int64_t n_logits() const { return d2t ? output->ne[1] : std::min<int64_t>(output->ne[1], n_candidates); }
    // The anchor and the tokens that the longest block proposes.
    int32_t max_length() const { return std::min(block_size + anchor_first, MAX_LENGTH); }
    // Whether rows see later rows, so that a shorter block would have other hidden states than those it was trained on.
    bool looks_ahead() const {
        return std::any_of(layers.begin(), layers.end(),
            [this](const drafter_layer & layer) { return !(layer.swa ? causal_swa : causal); });
    }
    // Whether a block always has block_size rows, and only its proposals are cut. Drafters like the DFlash authors' get
    // shorter blocks, as in the authors' code.
    bool keeps_block() const { return (anchor_first || kind->whole_block) && looks_ahead(); }
    // Rows of a block of `length` tokens: the anchor and its proposals.
    int32_t n_rows(int32_t length) const { return keeps_block() ? block_size : length - anchor_first; }
    bool    is_mrope() const { return rope_type == LLAMA_ROPE_TYPE_MROPE; }
    // Whether M-RoPE rotates by more than the first section: only then rows of images differ from text.
    bool has_sections() const { return is_mrope() && (rope_sections[1] > 0 || rope_sections[2] > 0); }
    // Whether products with fc may round taps to F16, or to blocks of integers with F16 scales and sums. Hidden states
    // can exceed F16's range; such rows must be scaled down. Newer files have an fc of BF16 or F32.
    bool scales_taps() const { return fc && fc->type != GGML_TYPE_F32 && fc->type != GGML_TYPE_BF16; }
};

// Throws std::runtime_error that names what the engine does not support.
LLAMA_API drafter_model access_drafter(const llama_model * model);

}   // namespace dflash
