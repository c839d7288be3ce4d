#include "draft/lilicorr.h"

#include "base/error.h"
#include "ggml-backend.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace dflash {

namespace {

// The nodes of one graph. Dimensions: first what a row has, then candidates (or 1), positions, slots.
class correlator_graph {
  public:
    correlator_graph(const drafter_model & model, draft_graph & graph, int64_t top_k) :
        model_(model), head_(model.lilicorr), graph_(graph), ctx_(graph.ctx.get()), k_(top_k),
        n_pos_(graph.shape.n_pos), n_slots_(graph.shape.n_slots()) {}

    // The likeliest tokens of each position, best first, as the graph's ids. Returns what is said of each: its
    // log-probability and probability, the distance to the best one's, and what its rank says, [5, k, n_pos, n_slots].
    // logits: [n_logits, n_out]; ranks: [2, k].
    ggml_tensor * choose(ggml_tensor * logits, ggml_tensor * ranks) {
        const int64_t n_out   = n_pos_ * n_slots_;
        ggml_tensor * ids     = ggml_top_k(ctx_, logits, (int) k_);   // in no order
        ggml_tensor * order   = ggml_argsort(ctx_, pick(ctx_, logits, ids), GGML_SORT_ORDER_DESC);
        graph_.ids            = graph_.output(ggml_get_rows(ctx_, ggml_reshape_3d(ctx_, ids, 1, k_, n_out), order));
        ids                   = ggml_reshape_2d(ctx_, graph_.ids, k_, n_out);
        ggml_tensor * scores  = pick(ctx_, logits, ids);
        ggml_tensor * probs   = pick(ctx_, ggml_soft_max(ctx_, logits), ids);
        const auto    best_of = [&](ggml_tensor * rows) {
            return ggml_cont(ctx_, ggml_view_2d(ctx_, rows, 1, n_out, rows->nb[1], 0));
        };
        // by way of the best one: a candidate's own probability may be too small for a float
        ggml_tensor * distance = ggml_sub(ctx_, scores, best_of(scores));
        ggml_tensor * log_prob = ggml_add(ctx_, distance, ggml_log(ctx_, best_of(probs)));

        const auto feature = [&](ggml_tensor * rows) { return ggml_reshape_4d(ctx_, rows, 1, k_, n_pos_, n_slots_); };
        ggml_tensor * features = ggml_concat(ctx_, feature(log_prob), feature(probs), 0);
        features               = ggml_concat(ctx_, features, feature(distance), 0);
        return ggml_concat(ctx_, features, ggml_repeat_4d(ctx_, ranks, 2, k_, n_pos_, n_slots_), 0);
    }

    // A row for each candidate [H, k, n_pos, n_slots]. hidden: [n_embd, n_out].
    ggml_tensor * candidates(ggml_tensor * hidden, ggml_tensor * features) {
        const auto add = [&](ggml_tensor * rows, ggml_tensor * more) { return ggml_add(ctx_, rows, more); };
        features       = ggml_norm(ctx_, features, FEATURE_EPSILON);
        features       = add(ggml_mul(ctx_, features, head_.feature_norm.weight), head_.feature_norm.bias);
        features       = apply(head_.feature_down, ggml_silu(ctx_, apply(head_.feature_up, features)));

        ggml_tensor * rows = add(embeddings(), features);
        rows               = add(rows, split(apply(head_.hidden, hidden), 1, n_pos_, n_slots_));
        ggml_tensor * places =
            ggml_view_2d(ctx_, head_.position_embd, rows->ne[0], n_pos_, head_.position_embd->nb[1], 0);
        rows = add(rows, split(places, 1, n_pos_, 1));
        return add(rows, head_.rank_embd);
    }

    // What attention adds for the distance between positions: [k * n_pos keys, k * n_pos queries, n_head]. bias: by
    // positions of the longest block.
    ggml_tensor * bias_of_rows(ggml_tensor * bias) {
        ggml_tensor * part = ggml_view_3d(ctx_, bias, n_pos_, n_pos_, head_.n_head, bias->nb[1], bias->nb[2], 0);
        part               = ggml_reshape_4d(ctx_, ggml_cont(ctx_, part), 1, n_pos_, 1, n_pos_ * head_.n_head);
        part               = ggml_repeat_4d(ctx_, part, k_, n_pos_, k_, n_pos_ * head_.n_head);
        return ggml_reshape_3d(ctx_, part, k_ * n_pos_, k_ * n_pos_, head_.n_head);
    }

    ggml_tensor * layer(const correlator_layer & layer, ggml_tensor * rows, ggml_tensor * bias) {
        rows             = ggml_add(ctx_, rows, attention(layer, norm(rows, layer.attn_norm), bias));
        ggml_tensor * up = apply(layer.up, norm(rows, layer.ffn_norm));
        return ggml_add(ctx_, rows, apply(layer.down, ggml_silu(ctx_, up)));
    }

    // Scores of all pairs of neighbouring candidates [k next, k prev, n_pos, n_slots]; before the first stands the
    // context row, whichever candidate. rows: what the last layer made; context: [n_embd, n_slots].
    ggml_tensor * pairs(ggml_tensor * rows, ggml_tensor * context) {
        context              = split(norm(apply(head_.context, context), head_.context_norm), 1, 1, n_slots_);
        ggml_tensor * mixed  = factors(norm(rows, head_.output_norm), context);
        ggml_tensor * next   = unit(apply(head_.in, mixed));
        ggml_tensor * before = unit(apply(head_.start, context));
        before               = ggml_repeat_4d(ctx_, before, before->ne[0], k_, 1, n_slots_);
        if (n_pos_ > 1) {
            ggml_tensor * out = unit(apply(head_.out, mixed));
            out = ggml_view_4d(ctx_, out, out->ne[0], k_, n_pos_ - 1, n_slots_, out->nb[1], out->nb[2], out->nb[3], 0);
            before = ggml_concat(ctx_, before, ggml_cont(ctx_, out), 2);
        }
        return ggml_scale(ctx_, ggml_mul_mat(ctx_, next, before), head_.scale);
    }

  private:
    static constexpr float FEATURE_EPSILON = 1e-5f;   // torch.nn.LayerNorm's

    ggml_tensor * split(ggml_tensor * rows, int64_t k, int64_t n_pos, int64_t n_slots) {
        return ggml_reshape_4d(ctx_, rows, rows->ne[0], k, n_pos, n_slots);
    }

    ggml_tensor * apply(const affine & by, ggml_tensor * rows) {
        return ggml_add(ctx_, product(ctx_, by.weight, rows), by.bias);
    }

    ggml_tensor * norm(ggml_tensor * rows, ggml_tensor * weight) {
        return ggml_mul(ctx_, ggml_rms_norm(ctx_, rows, model_.rms_eps), weight);
    }

    ggml_tensor * unit(ggml_tensor * rows) { return ggml_l2_norm(ctx_, rows, head_.epsilon); }

    // Of the graph's ids: [H, k, n_pos, n_slots].
    ggml_tensor * embeddings() {
        ggml_tensor * rows = embed(graph_, model_, target_tokens(ctx_, model_, graph_.ids), k_);
        return head_.token.weight ? apply(head_.token, rows) : rows;
    }

    // All rows of a block see each other.
    ggml_tensor * attention(const correlator_layer & layer, ggml_tensor * rows, ggml_tensor * bias) {
        const int64_t row_size = rows->ne[0], size = row_size / head_.n_head, n_rows = k_ * n_pos_;
        ggml_tensor * qkv  = apply(layer.qkv, rows);
        const auto    part = [&](int64_t i, int axis0, int axis1) {   // as heads, one after the other
            ggml_tensor * view = ggml_view_4d(ctx_, qkv, size, head_.n_head, n_rows, n_slots_, size * qkv->nb[0],
                   qkv->nb[1], qkv->nb[3], (size_t) (i * row_size) * qkv->nb[0]);
            return ggml_cont(ctx_, ggml_permute(ctx_, view, axis0, 2, axis1, 3));
        };
        ggml_tensor * q = part(0, 0, 1), *k = part(1, 0, 1), *v = part(2, 1, 0);   // v: [n_rows, size, n_head, n_slots]
        ggml_tensor * scores = ggml_mul_mat(ctx_, k, q);
        scores               = ggml_soft_max_ext(ctx_, scores, bias, 1.0f / std::sqrt((float) size), 0.0f);
        ggml_tensor * out    = ggml_permute(ctx_, ggml_mul_mat(ctx_, v, scores), 0, 2, 1, 3);
        return apply(layer.out, ggml_cont_4d(ctx_, out, row_size, k_, n_pos_, n_slots_));
    }

    // What both unit vectors of a candidate are made from.
    ggml_tensor * factors(ggml_tensor * rows, ggml_tensor * context) {
        ggml_tensor * mixed = product(ctx_, head_.factor_product, ggml_mul(ctx_, rows, context));
        mixed               = ggml_add(ctx_, mixed, apply(head_.factor, rows));
        return ggml_silu(ctx_, ggml_add(ctx_, mixed, product(ctx_, head_.factor_context, context)));
    }

    const drafter_model & model_;
    const correlator &    head_;
    draft_graph &         graph_;
    ggml_context *        ctx_;
    const int64_t         k_, n_pos_, n_slots_;
};

}   // namespace

lilicorr_selector::lilicorr_selector(const drafter_model & model, int32_t n_slots) :
    selector(model.lilicorr.top_k), model_(model) {
    fail_if(top_k() > model.n_logits(), "dflash.lilicorr_top_k is ", top_k(),
        ", more than the tokens that may be proposed: convert the drafter with this target");
    const int64_t n_pos = model.block_size - 1;
    ctx_.reset(ggml_init({ 3 * ggml_tensor_overhead(), nullptr, true }));
    newest_ = ggml_new_tensor_2d(ctx_.get(), GGML_TYPE_F32, model.n_embd, n_slots + 1);
    ranks_  = ggml_new_tensor_2d(ctx_.get(), GGML_TYPE_F32, 2, top_k());
    bias_   = ggml_new_tensor_3d(ctx_.get(), GGML_TYPE_F32, n_pos, n_pos, model.lilicorr.n_head);
    buffer_.reset(ggml_backend_alloc_ctx_tensors_from_buft(ctx_.get(), memory_beside(model.lilicorr.hidden.weight)));
    fail_if(!buffer_, "not enough memory for the drafter's context rows: lower -np");
    ggml_backend_buffer_clear(buffer_.get(), 0);
    fill_ranks();
    if (model.lilicorr.distance_bias->data) {   // a plan has no data
        fill_bias();
    }
}

void lilicorr_selector::fill_ranks() const {
    std::vector<float> ranks;
    for (int32_t rank = 0; rank < top_k(); ++rank) {
        ranks.push_back((float) rank / (float) std::max(1, top_k() - 1));
        ranks.push_back(rank == 0 ? 1.0f : 0.0f);
    }
    ggml_backend_tensor_set(ranks_, ranks.data(), 0, ranks.size() * sizeof(float));
}

void lilicorr_selector::fill_bias() const {
    const std::vector<float> by_distance =
        download<float>(model_.lilicorr.distance_bias);   // of the query from the key
    const std::vector<float> same  = download<float>(model_.lilicorr.same_bias);
    const int32_t            n_pos = model_.block_size - 1, n_distances = 2 * model_.block_size - 1;
    std::vector<float>       bias;
    bias.reserve(ggml_nelements(bias_));
    for (int32_t head = 0; head < model_.lilicorr.n_head; ++head) {
        const float * distances = by_distance.data() + (size_t) head * n_distances + n_pos;   // from 0 on
        for (int32_t query = 0; query < n_pos; ++query) {
            for (int32_t key = 0; key < n_pos; ++key) {
                bias.push_back(distances[query - key] + (query == key ? same[head] : 0.0f));
            }
        }
    }
    ggml_backend_tensor_set(bias_, bias.data(), 0, bias.size() * sizeof(float));
}

void lilicorr_selector::keep(draft_graph & graph, ggml_tensor * taps) const {
    ggml_context * ctx = graph.ctx.get();
    graph.newest       = graph.input(ggml_new_tensor_1d(ctx, GGML_TYPE_I64, graph.shape.n_inject));
    graph.add(ggml_set_rows(ctx, newest_, taps, graph.newest));
}

// The newest context row of every slot that denoises: [n_embd, n_slots].
ggml_tensor * lilicorr_selector::context_of(draft_graph & graph) const {
    ggml_context * ctx  = graph.ctx.get();
    ggml_tensor *  rows = nullptr;
    for (const int32_t slot : graph.shape.slots) {
        ggml_tensor * row = ggml_view_2d(ctx, newest_, model_.n_embd, 1, newest_->nb[1], slot * newest_->nb[1]);
        row               = ggml_cont(ctx, row);
        rows              = rows ? ggml_concat(ctx, rows, row, 1) : row;
    }
    return rows;
}

void lilicorr_selector::build(draft_graph & graph, ggml_tensor * hidden, ggml_tensor * logits) const {
    correlator_graph correlator(model_, graph, top_k());
    ggml_tensor *    features = correlator.choose(proposing_rows(graph, logits), ranks_);
    ggml_tensor *    rows     = correlator.candidates(proposing_rows(graph, hidden), features);
    ggml_tensor *    bias     = correlator.bias_of_rows(bias_);
    for (const correlator_layer & layer : model_.lilicorr.layers) {
        rows = correlator.layer(layer, rows, bias);
    }
    graph.scores = graph.output(correlator.pairs(rows, context_of(graph)));
}

}   // namespace dflash
