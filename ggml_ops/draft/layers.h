// A drafter's layers as graph nodes: injection, attention, feed-forward. Model: upstream's src/models/dflash.cpp;
// arithmetic: package `dflash` (DFlashDraftModel, DFlash2DraftModel).
//
// A pass has two kinds of rows. Tap rows are taps after `fc` (inject), or mixed with weights for each layer (DFlare):
// each layer only stores their K and V. Block rows are the tokens [anchor, MASK, MASK, ...] of every slot that drafts:
// they attend to everything stored for their slot and to their own block.

#pragma once

#include "draft/graph.h"
#include "draft/kv_ring.h"
#include "llama/drafter_model.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dflash {

class tap_store;   // llama/tap_store.h

// More nodes and leafs than a graph of the largest shape has, with the selector's: a few for each row of a block, and
// for each slot in each layer.
size_t most_tensors(const drafter_model & model, int32_t n_slots);

class layer_builder {
  public:
    layer_builder(draft_graph & graph, const drafter_model & model, const kv_ring & kv, bool flash_attn);

    // Taps -> tap rows [n_embd, n_inject], with DFlare [n_embd, n_inject, n_layer]; null if the shape injects nothing.
    // store: where the taps are; null: on the host.
    ggml_tensor * tap_rows(const tap_store * store);
    // Tokens -> block rows [n_embd, n_block]; null if the shape denoises nothing.
    ggml_tensor * block_rows();
    // Adds one layer: takes block rows and returns the next layer's; null stays null. Call for all layers in order.
    ggml_tensor * layer(size_t il, ggml_tensor * taps, ggml_tensor * block);
    // The last layer's block rows -> normalized hidden states [n_embd, n_block].
    ggml_tensor * hidden(ggml_tensor * block);
    // Hidden states -> logits of the tokens that may be proposed, [n_logits, n_block].
    ggml_tensor * logits(ggml_tensor * hidden);

  private:
    enum side { BEFORE, AFTER };   // of the sub-layer that a convolution surrounds
    struct linear {
        ggml_tensor *weight, *bias;   // bias may be null
    };

    void          add_masks();
    draft_mask    new_mask(int32_t span, bool all_alike);
    ggml_tensor * read_taps(const tap_store * store);
    ggml_tensor * scale_taps(ggml_tensor *& taps);
    ggml_tensor * fuse_by_layer(ggml_tensor * taps);
    ggml_tensor * tap_rows_of(size_t il, ggml_tensor * taps);
    void          store_kv(size_t il, ggml_tensor * taps, ggml_tensor * rows);
    ggml_tensor * joined_rows(ggml_tensor * first, ggml_tensor * second);
    ggml_tensor * joined(std::vector<ggml_tensor *> parts);
    ggml_tensor * attention(size_t il, ggml_tensor * rows);
    ggml_tensor * attend(size_t il, int32_t i, ggml_tensor * q);
    ggml_tensor * feed_forward(const drafter_layer & layer, ggml_tensor * rows);
    ggml_tensor * product(ggml_tensor * weight, ggml_tensor * rows, ggml_tensor * bias);
    ggml_tensor * norm(ggml_tensor * rows, ggml_tensor * weight);
    ggml_tensor * rope_keys(ggml_tensor * keys);
    ggml_tensor * rope(ggml_tensor * heads, ggml_tensor * pos, float base);
    ggml_tensor * conv_weights(ggml_tensor * proj, ggml_tensor * rows);
    ggml_tensor * convolve(ggml_tensor * rows, ggml_tensor * weights, ggml_tensor * base, side at);

    draft_graph &         graph_;
    const graph_shape &   shape_;
    const drafter_model & model_;
    const kv_ring &       kv_;
    const bool            flash_attn_;
    ggml_context *        ctx_;
};

}   // namespace dflash
