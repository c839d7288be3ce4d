#include "draft/layers.h"

#include "llama/tap_store.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace dflash {

size_t most_tensors(const drafter_model & model, int32_t n_slots) {
    // Of a layer with its weights; for each slot, of its attention in a layer, and of its masks.
    constexpr size_t LAYER = 96, ATTENTION = 16, MASKS = 40;
    // Of the selector and what comes before the first layer; of DSpark's and Domino's steps; of LiliCorr's layers.
    constexpr size_t REST = 512, STEP = 48, CORRELATOR = 56;

    const size_t n            = (size_t) n_slots;
    const size_t convolutions = model.conv_kernel > 0 ? 18 + 40 * std::min(model.conv_kernel, model.block_size) : 0;
    const size_t steps        = model.markov_prev || model.domino_ih ? model.max_length() : 0;
    return model.layers.size() * (LAYER + convolutions + ATTENTION * n) + MASKS * n + REST + STEP * steps +
           CORRELATOR * model.lilicorr.layers.size();
}

layer_builder::layer_builder(draft_graph & graph, const drafter_model & model, const kv_ring & kv, bool flash_attn) :
    graph_(graph), shape_(graph.shape), model_(model), kv_(kv), flash_attn_(flash_attn), ctx_(graph.ctx.get()) {
    const int64_t axes = model.is_mrope() ? 4 : 1;
    graph_.pos_kv      = graph_.input(ggml_new_tensor_1d(ctx_, GGML_TYPE_I32, shape_.n_rows() * axes));
    graph_.cells       = graph_.input(ggml_new_tensor_1d(ctx_, GGML_TYPE_I64, shape_.n_rows()));
    if (shape_.n_block() > 0) {
        graph_.tokens = graph_.input(ggml_new_tensor_1d(ctx_, GGML_TYPE_I32, shape_.n_block()));
        graph_.pos_q  = graph_.input(ggml_new_tensor_1d(ctx_, GGML_TYPE_I32, shape_.n_block() * axes));
        add_masks();
    }
}

// An input that no layer reads would get no memory, so each kind of mask exists only if a layer uses it.
void layer_builder::add_masks() {
    const auto is_swa  = [](const drafter_layer & layer) { return layer.swa; };
    const bool any_swa = std::any_of(model_.layers.begin(), model_.layers.end(), is_swa);
    const bool all_swa = std::all_of(model_.layers.begin(), model_.layers.end(), is_swa);
    for (const int32_t span : shape_.spans) {
        graph_.masks.push_back(all_swa ? draft_mask() : new_mask(span, !model_.causal));
        graph_.masks_swa.push_back(any_swa ? new_mask(span, false) : draft_mask());
    }
}

// all_alike: all rows are the same.
draft_mask layer_builder::new_mask(int32_t span, bool all_alike) {
    const ggml_type type = flash_attn_ ? GGML_TYPE_F16 : GGML_TYPE_F32;
    draft_mask      mask;
    if (!graph_.transfers.masks || span % WORD_CELLS != 0) {
        mask.tensor = graph_.input(ggml_new_tensor_2d(ctx_, type, span, shape_.n_block_rows));
        return mask;
    }
    mask.words  = new_mask_inputs(ctx_, span, all_alike ? 1 : shape_.n_block_rows);
    mask.tensor = unpack_mask(ctx_, mask.words, GGML_TYPE_F32);
    if (all_alike) {
        mask.tensor = ggml_repeat_4d(ctx_, mask.tensor, span, shape_.n_block_rows, 1, 1);
    }
    mask.tensor = flash_attn_ ? ggml_cast(ctx_, mask.tensor, type) : mask.tensor;
    return mask;
}

// ---- rows ----

ggml_tensor * layer_builder::tap_rows(const tap_store * store) {
    if (shape_.n_inject == 0) {
        return nullptr;
    }
    ggml_tensor * taps    = read_taps(store);
    ggml_tensor * unscale = nullptr;
    if (model_.scales_taps()) {
        unscale = store ? scale_taps(taps) : graph_.input(ggml_new_tensor_2d(ctx_, GGML_TYPE_F32, 1, shape_.n_inject));
        graph_.unscale = store ? nullptr : unscale;
    }
    ggml_tensor * fused = model_.layer_fusion ? fuse_by_layer(taps) : ggml_mul_mat(ctx_, model_.fc, taps);
    if (!model_.layer_fusion) {
        ggml_prec_set_acc(fused, GGML_PREC_F32);
    }
    return norm(unscale ? ggml_mul(ctx_, fused, unscale) : fused, model_.enc_norm);
}

// F32 [n_taps * n_embd, n_inject]
ggml_tensor * layer_builder::read_taps(const tap_store * store) {
    if (!store) {
        graph_.taps = graph_.input(ggml_new_tensor_2d(ctx_, GGML_TYPE_F32, model_.tap_size(), shape_.n_inject));
        return graph_.taps;
    }
    graph_.tap_cells = graph_.input(ggml_new_tensor_1d(ctx_, GGML_TYPE_I32, shape_.n_inject));
    return ggml_get_rows(ctx_, store->rows(), graph_.tap_cells);
}

// Like the host's scaling of uploaded rows: limits the norm of rows that are too large for F16 to TAP_NORM, which also
// limits their elements. Returns the inverse factors, F32 [1, n_inject].
ggml_tensor * layer_builder::scale_taps(ggml_tensor *& taps) {
    constexpr float TAP_NORM = 1024.0f;
    ggml_tensor *   norms    = ggml_sqrt(ctx_, ggml_sum_rows(ctx_, ggml_sqr(ctx_, taps)));
    ggml_tensor *   unscale  = ggml_clamp(ctx_, ggml_scale(ctx_, norms, 1.0f / TAP_NORM), 1.0f, INFINITY);
    taps                     = ggml_div(ctx_, taps, unscale);
    return unscale;
}

// DFlare: mixes the taps for each layer, [n_embd, n_inject, n_layer].
ggml_tensor * layer_builder::fuse_by_layer(ggml_tensor * taps) {
    const int64_t n_embd = model_.n_embd, n_taps = model_.layer_fusion->ne[0];
    taps               = ggml_reshape_3d(ctx_, taps, n_embd, n_taps, shape_.n_inject);
    taps               = ggml_cont(ctx_, ggml_transpose(ctx_, taps));   // [n_taps, n_embd, n_inject]
    ggml_tensor * rows = ggml_mul_mat(ctx_, model_.layer_fusion, taps);
    ggml_prec_set_acc(rows, GGML_PREC_F32);   // taps are raw values of the residual stream
    return ggml_cont(ctx_, ggml_permute(ctx_, rows, 2, 0, 1, 3));
}

ggml_tensor * layer_builder::tap_rows_of(size_t il, ggml_tensor * taps) {
    return taps && model_.layer_fusion
               ? ggml_view_2d(ctx_, taps, taps->ne[0], taps->ne[1], taps->nb[1], il * taps->nb[2])
               : taps;
}

ggml_tensor * layer_builder::block_rows() {
    if (shape_.n_block() == 0) {
        return nullptr;
    }
    ggml_tensor * table = model_.tok_embd;
    if (graph_.transfers.rows) {
        table = graph_.token_rows =
            graph_.input(ggml_new_tensor_2d(ctx_, table->type, table->ne[0], shape_.n_slots() + 1));
    }
    ggml_tensor * rows = ggml_get_rows(ctx_, table, graph_.tokens);
    if (model_.mask_embd) {   // rows of the mask token use its own embedding
        graph_.masked      = graph_.input(ggml_new_tensor_2d(ctx_, GGML_TYPE_F32, 1, shape_.n_block()));
        ggml_tensor * ours = ggml_mul(ctx_, ggml_repeat(ctx_, model_.mask_embd, rows), graph_.masked);
        rows               = ggml_add(ctx_, ggml_sub(ctx_, rows, ggml_mul(ctx_, rows, graph_.masked)), ours);
    }
    return model_.embedding_scale != 0.0f ? ggml_scale(ctx_, rows, model_.embedding_scale) : rows;
}

ggml_tensor * layer_builder::hidden(ggml_tensor * block) { return norm(block, model_.out_norm); }

ggml_tensor * layer_builder::logits(ggml_tensor * hidden) {
    ggml_tensor * logits = ggml_mul_mat(ctx_, model_.output, hidden);
    if (logits->ne[0] > model_.n_logits()) {   // the rest is padding
        logits = ggml_cont(ctx_, ggml_view_2d(ctx_, logits, model_.n_logits(), logits->ne[1], logits->nb[1], 0));
    }
    if (model_.logit_scale != 0.0f) {
        logits = ggml_scale(ctx_, logits, model_.logit_scale);
    }
    if (model_.logit_softcap > 0.0f) {
        logits = ggml_tanh(ctx_, ggml_scale(ctx_, logits, 1.0f / model_.logit_softcap));
        logits = ggml_scale(ctx_, logits, model_.logit_softcap);
    }
    return logits;
}

// ---- one layer ----

ggml_tensor * layer_builder::layer(size_t il, ggml_tensor * taps, ggml_tensor * block) {
    const drafter_layer & layer = model_.layers[il];
    taps                        = tap_rows_of(il, taps);
    if (!block) {
        store_kv(il, taps, nullptr);
        return nullptr;
    }

    ggml_tensor * rows    = norm(block, layer.attn_norm);
    ggml_tensor * weights = conv_weights(layer.attn_conv_proj, rows);
    rows                  = convolve(rows, weights, layer.attn_conv_base, BEFORE);
    store_kv(il, taps, rows);
    rows = attention(il, rows);
    rows = convolve(rows, weights, layer.attn_conv_base, AFTER);
    if (layer.attn_post_norm) {
        rows = norm(rows, layer.attn_post_norm);
    }
    block = ggml_add(ctx_, block, rows);

    rows    = norm(block, layer.ffn_norm);
    weights = conv_weights(layer.ffn_conv_proj, rows);
    rows    = convolve(rows, weights, layer.ffn_conv_base, BEFORE);
    rows    = feed_forward(layer, rows);
    rows    = convolve(rows, weights, layer.ffn_conv_base, AFTER);
    if (layer.ffn_post_norm) {
        rows = norm(rows, layer.ffn_post_norm);
    }
    block = ggml_add(ctx_, block, rows);
    return layer.out_scale ? ggml_mul(ctx_, block, layer.out_scale) : block;
}

// Rows [n, first], then rows [n, second]; either may be null. As matrices of one row each: the CPU's threads share
// matrices, not rows.
ggml_tensor * layer_builder::joined_rows(ggml_tensor * first, ggml_tensor * second) {
    if (!first || !second) {
        return first ? first : second;
    }
    const auto matrices = [&](ggml_tensor * rows) { return ggml_reshape_3d(ctx_, rows, rows->ne[0], 1, rows->ne[1]); };
    ggml_tensor * all   = ggml_concat(ctx_, matrices(first), matrices(second), 2);
    return ggml_reshape_2d(ctx_, all, all->ne[0], all->ne[2]);
}

// Writes K and V of all rows into their cells.
void layer_builder::store_kv(size_t il, ggml_tensor * taps, ggml_tensor * rows) {
    const drafter_layer & layer    = model_.layers[il];
    const int64_t         head_dim = model_.head_dim, n_head_kv = model_.n_head_kv, n_rows = shape_.n_rows();

    // Rows of taps and of blocks with the same weights are multiplied together, so that these are read only once.
    ggml_tensor * all      = layer.wk_ctx ? nullptr : joined_rows(taps, rows);
    const auto    heads_of = [&](linear block, linear context) {
        ggml_tensor * heads = all ? product(block.weight, all, block.bias)
                                     : joined_rows(taps ? product(context.weight, taps, context.bias) : nullptr,
                                        rows ? product(block.weight, rows, block.bias) : nullptr);
        return ggml_reshape_3d(ctx_, heads, head_dim, n_head_kv, n_rows);
    };
    ggml_tensor * k = heads_of({ layer.wk, layer.bk }, { layer.wk_ctx, layer.bk_ctx });
    ggml_tensor * v = layer.wv ? heads_of({ layer.wv, layer.bv }, { layer.wv_ctx, layer.bv_ctx })
                               : ggml_rms_norm(ctx_, k, model_.rms_eps);
    k               = rope_keys(norm(k, layer.k_norm));
    for (const auto & [cache, heads] : { std::pair(kv_.k(il), k), std::pair(kv_.v(il), v) }) {
        graph_.add(
            ggml_set_rows(ctx_, cache, ggml_reshape_2d(ctx_, heads, head_dim * n_head_kv, n_rows), graph_.cells));
    }
}

// What attention adds to block rows. Each slot sees its own cells.
ggml_tensor * layer_builder::attention(size_t il, ggml_tensor * rows) {
    const drafter_layer & layer    = model_.layers[il];
    const int64_t         head_dim = model_.head_dim, n_head = model_.n_head;

    ggml_tensor * q = ggml_reshape_3d(ctx_, product(layer.wq, rows, layer.bq), head_dim, n_head, shape_.n_block());
    q               = rope(norm(q, layer.q_norm), graph_.pos_q, model_.rope_base);

    std::vector<ggml_tensor *> parts;
    for (int32_t i = 0; i < shape_.n_slots(); ++i) {
        ggml_tensor * q_slot = ggml_view_3d(ctx_, q, head_dim, n_head, shape_.n_block_rows, q->nb[1], q->nb[2],
            (size_t) i * shape_.n_block_rows * q->nb[2]);
        parts.push_back(attend(il, i, ggml_permute(ctx_, q_slot, 0, 2, 1, 3)));
    }
    ggml_tensor * out = ggml_reshape_2d(ctx_, joined(parts), head_dim * n_head, shape_.n_block());
    if (model_.value_scale != 0.0f) {
        out = ggml_scale(ctx_, out, model_.value_scale);
    }
    return product(layer.wo, out, layer.bo);
}

// Tensors [a, b, n] one after another, at least one. In pairs, so that none is copied often.
ggml_tensor * layer_builder::joined(std::vector<ggml_tensor *> parts) {
    while (parts.size() > 1) {
        std::vector<ggml_tensor *> pairs;
        for (size_t i = 0; i + 1 < parts.size(); i += 2) {
            pairs.push_back(ggml_concat(ctx_, parts[i], parts[i + 1], 2));
        }
        if (parts.size() % 2 == 1) {
            pairs.push_back(parts.back());
        }
        parts = std::move(pairs);
    }
    return parts[0];
}

// Attention of the shape's slot i: q [head_dim, length, n_head] -> [head_dim, n_head, length].
ggml_tensor * layer_builder::attend(size_t il, int32_t i, ggml_tensor * q) {
    const drafter_layer & layer = model_.layers[il];

    const auto cells = [&](ggml_tensor * cache) {   // the slot's part: [head_dim, span, n_head_kv]
        ggml_tensor * view = ggml_view_3d(ctx_, cache, model_.head_dim, model_.n_head_kv, shape_.spans[i],
            ggml_row_size(cache->type, model_.head_dim), cache->nb[1],
            (size_t) kv_.first_cell(shape_.slots[i]) * cache->nb[1]);
        return ggml_permute(ctx_, view, 0, 2, 1, 3);
    };
    ggml_tensor * k    = cells(kv_.k(il));
    ggml_tensor * v    = cells(kv_.v(il));
    ggml_tensor * mask = layer.swa ? graph_.masks_swa[i].tensor : graph_.masks[i].tensor;
    if (flash_attn_) {
        ggml_tensor * out = ggml_flash_attn_ext(ctx_, q, k, v, mask, model_.attention_scale, 0.0f, 0.0f);
        ggml_flash_attn_ext_add_sinks(out, layer.attn_sinks);
        ggml_prec_set_acc(out, GGML_PREC_F32);
        return out;
    }
    ggml_tensor * scores = ggml_mul_mat(ctx_, k, q);
    ggml_prec_set_acc(scores, GGML_PREC_F32);
    scores = ggml_soft_max_ext(ctx_, scores, mask, model_.attention_scale, 0.0f);
    ggml_soft_max_add_sinks(scores, layer.attn_sinks);
    ggml_tensor * out = ggml_mul_mat(ctx_, ggml_cont(ctx_, ggml_transpose(ctx_, v)), scores);
    return ggml_cont(ctx_, ggml_permute(ctx_, out, 0, 2, 1, 3));
}

ggml_tensor * layer_builder::feed_forward(const drafter_layer & layer, ggml_tensor * rows) {
    ggml_tensor * gate = ggml_mul_mat(ctx_, layer.ffn_gate, rows);
    ggml_tensor * up   = ggml_mul_mat(ctx_, layer.ffn_up, rows);
    ggml_tensor * act  = model_.gelu ? ggml_geglu_split(ctx_, gate, up) : ggml_swiglu_split(ctx_, gate, up);
    return ggml_mul_mat(ctx_, layer.ffn_down, act);
}

// ---- parts ----

// bias may be null.
ggml_tensor * layer_builder::product(ggml_tensor * weight, ggml_tensor * rows, ggml_tensor * bias) {
    ggml_tensor * out = ggml_mul_mat(ctx_, weight, rows);
    return bias ? ggml_add(ctx_, out, bias) : out;
}

ggml_tensor * layer_builder::norm(ggml_tensor * rows, ggml_tensor * weight) {
    return ggml_mul(ctx_, ggml_rms_norm(ctx_, rows, model_.rms_eps), weight);
}

// Keys [head_dim, n_head_kv, n_rows] of all rows; rows of taps may have their own rope base.
ggml_tensor * layer_builder::rope_keys(ggml_tensor * keys) {
    const int64_t n_taps = shape_.n_inject, n_block = shape_.n_block();
    if (model_.tap_rope_base == model_.rope_base || n_taps == 0) {
        return rope(keys, graph_.pos_kv, model_.rope_base);
    }
    if (n_block == 0) {
        return rope(keys, graph_.pos_kv, model_.tap_rope_base);
    }
    const auto part = [&](int64_t first, int64_t n, float base) {
        ggml_tensor * rows =
            ggml_view_3d(ctx_, keys, keys->ne[0], keys->ne[1], n, keys->nb[1], keys->nb[2], first * keys->nb[2]);
        ggml_tensor * pos = ggml_view_1d(ctx_, graph_.pos_kv, n, first * graph_.pos_kv->nb[0]);
        return rope(rows, pos, base);
    };
    return ggml_concat(ctx_, part(0, n_taps, model_.tap_rope_base), part(n_taps, n_block, model_.rope_base), 2);
}

ggml_tensor * layer_builder::rope(ggml_tensor * heads, ggml_tensor * pos, float base) {
    const drafter_model & m = model_;
    if (m.is_mrope()) {
        int sections[4];
        std::copy(m.rope_sections, m.rope_sections + 4, sections);
        return ggml_rope_multi(ctx_, heads, pos, m.rope_freqs, m.n_rot, sections, m.rope_type, m.n_ctx_orig, base,
            m.rope_scale, m.ext_factor, m.attn_factor, m.beta_fast, m.beta_slow);
    }
    return ggml_rope_ext(ctx_, heads, pos, m.rope_freqs, m.n_rot, m.rope_type, m.n_ctx_orig, base, m.rope_scale,
        m.ext_factor, m.attn_factor, m.beta_fast, m.beta_slow);
}

// DFlash 2: each row's weights of the two convolutions around a sub-layer, [2 * kernel * groups, n_block]; null for a
// sub-layer without them.
ggml_tensor * layer_builder::conv_weights(ggml_tensor * proj, ggml_tensor * rows) {
    return proj ? ggml_mul_mat(ctx_, proj, rows) : nullptr;
}

// GroupedDynamicCausalConv of package `dflash`: out[t] = sum_d (base[d] + weights[t, d]) * rows[t - d] within each
// block. base: [n_embd, kernel, 2]. Without weights the rows stay unchanged.
ggml_tensor * layer_builder::convolve(ggml_tensor * rows, ggml_tensor * weights, ggml_tensor * base, side at) {
    if (!weights) {
        return rows;
    }
    const int64_t n_embd = model_.n_embd, n_rows = rows->ne[1], length = shape_.n_block_rows,
                  n_blocks = n_rows / length;
    const int64_t group = model_.conv_group, n_groups = n_embd / group, kernel = model_.conv_kernel;

    ggml_tensor * in  = ggml_is_contiguous(rows) ? rows : ggml_cont(ctx_, rows);
    in                = ggml_reshape_3d(ctx_, in, n_embd, length, n_blocks);
    ggml_tensor * out = nullptr;
    for (int64_t delay = 0; delay < std::min(kernel, length); ++delay) {
        ggml_tensor * delayed = in;
        if (delay > 0) {   // shifts rows down within each block, filling with zeros
            delayed = ggml_view_3d(ctx_, in, n_embd, length - delay, n_blocks, in->nb[1], in->nb[2], 0);
            delayed = ggml_pad_ext(ctx_, delayed, 0, 0, (int) delay, 0, 0, 0, 0, 0);
        }
        delayed = ggml_reshape_3d(ctx_, delayed, group, n_groups, n_rows);
        // a row of weights is [side][kernel][groups]
        ggml_tensor * dynamic = ggml_view_3d(ctx_, weights, 1, n_groups, n_rows, weights->nb[0], weights->nb[1],
            (size_t) ((at * kernel + delay) * n_groups) * weights->nb[0]);
        ggml_tensor * fixed   = ggml_view_3d(ctx_, base, group, n_groups, 1, group * base->nb[0], base->nb[1],
              (size_t) at * base->nb[2] + (size_t) delay * base->nb[1]);
        ggml_tensor * term =
            ggml_add(ctx_, ggml_mul(ctx_, delayed, fixed), ggml_mul(ctx_, delayed, ggml_cont(ctx_, dynamic)));
        out = out ? ggml_add(ctx_, out, term) : term;
    }
    return ggml_reshape_2d(ctx_, out, n_embd, n_rows);
}

}   // namespace dflash
