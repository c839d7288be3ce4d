#include "draft/selector.h"

#include "base/error.h"
#include "draft/domino.h"
#include "draft/lilicorr.h"
#include "draft/markov.h"
#include "draft/tree_growth.h"

#include <algorithm>
#include <cmath>

namespace dflash {

ggml_tensor * rows_of_blocks(const draft_graph & graph, ggml_tensor * rows, int64_t length, int64_t from, int64_t n) {
    const int64_t  n_slots = graph.shape.n_slots();
    ggml_context * ctx     = graph.ctx.get();
    ggml_tensor *  view =
        ggml_view_3d(ctx, rows, rows->ne[0], n, n_slots, rows->nb[1], rows->nb[1] * length, rows->nb[1] * from);
    const bool as_is = n_slots == 1 && rows->nb[1] * from % graph.alignment == 0;
    return ggml_reshape_2d(ctx, as_is ? view : ggml_cont(ctx, view), rows->ne[0], n * n_slots);
}

ggml_tensor * proposing_rows(const draft_graph & graph, ggml_tensor * rows) {
    const graph_shape & shape = graph.shape;
    return shape.first == 0 ? rows : rows_of_blocks(graph, rows, shape.n_head(), shape.first, shape.n_pos);
}

ggml_tensor * pick(ggml_context * ctx, ggml_tensor * rows, ggml_tensor * ids) {
    ggml_tensor * elements = ggml_reshape_3d(ctx, rows, 1, rows->ne[0], rows->ne[1]);
    return ggml_reshape_2d(ctx, ggml_get_rows(ctx, elements, ids), ids->ne[0], ids->ne[1]);
}

ggml_tensor * target_tokens(ggml_context * ctx, const drafter_model & model, ggml_tensor * ids) {
    if (!model.target_ids) {
        return ids;
    }
    ggml_tensor * row = ggml_reshape_1d(ctx, ggml_is_contiguous(ids) ? ids : ggml_cont(ctx, ids), ggml_nelements(ids));
    ggml_tensor * tokens = ggml_get_rows(ctx, model.target_ids, row);
    return ggml_reshape_4d(ctx, tokens, ids->ne[0], ids->ne[1], ids->ne[2], ids->ne[3]);
}

ggml_tensor * rows_of_candidates(const draft_graph & graph, ggml_tensor * table, ggml_tensor * tokens) {
    ggml_context * ctx  = graph.ctx.get();
    ggml_tensor *  rows = ggml_get_rows(ctx, table, ggml_reshape_1d(ctx, tokens, ggml_nelements(tokens)));
    return ggml_reshape_4d(ctx, rows, table->ne[0], tokens->ne[0], graph.shape.n_pos, graph.shape.n_slots());
}

ggml_tensor * rows_before(const draft_graph & graph, ggml_tensor * table, ggml_tensor * tokens) {
    const int64_t  n_slots = graph.shape.n_slots(), n_pos = graph.shape.n_pos, k = tokens->ne[0], n = table->ne[0];
    ggml_context * ctx  = graph.ctx.get();
    ggml_tensor *  rows = ggml_reshape_4d(ctx, ggml_get_rows(ctx, table, graph.anchors), n, 1, 1, n_slots);
    rows                = ggml_repeat_4d(ctx, rows, n, k, 1, n_slots);
    if (n_pos > 1) {
        ggml_tensor * before =
            ggml_view_3d(ctx, tokens, k, n_pos - 1, n_slots, tokens->nb[1], tokens->nb[1] * n_pos, 0);
        before = ggml_reshape_1d(ctx, ggml_cont(ctx, before), k * (n_pos - 1) * n_slots);
        before = ggml_get_rows(ctx, table, before);
        rows   = ggml_concat(ctx, rows, ggml_reshape_4d(ctx, before, n, k, n_pos - 1, n_slots), 2);
    }
    return rows;
}

void selector::finish_pairs(draft & drafted, draft_probe * probe) const {
    if (probe) {
        probe->scores = drafted.probs;
    }
    for (float *row = drafted.probs.data(), *end = row + drafted.probs.size(); row < end; row += top_k()) {
        const float best = *std::max_element(row, row + top_k());
        float       sum  = 0;
        for (int32_t i = 0; i < top_k(); ++i) {
            sum += row[i] = std::exp(row[i] - best);
        }
        for (int32_t i = 0; i < top_k(); ++i) {
            row[i] /= sum;
        }
    }
}

ggml_tensor * product(ggml_context * ctx, ggml_tensor * weight, ggml_tensor * rows) {
    ggml_tensor * out = ggml_mul_mat(ctx, weight, ggml_reshape_2d(ctx, rows, rows->ne[0], ggml_nrows(rows)));
    return ggml_reshape_4d(ctx, out, out->ne[0], rows->ne[1], rows->ne[2], rows->ne[3]);
}

ggml_tensor * embed(const draft_graph & graph, const drafter_model & model, ggml_tensor * ids, int64_t k) {
    ggml_context * ctx = graph.ctx.get();
    const int64_t  n = ggml_nelements(ids), n_slots = graph.shape.n_slots();
    ggml_tensor *  rows = ggml_get_rows(ctx, model.tok_embd, ggml_reshape_1d(ctx, ids, n));
    rows                = ggml_reshape_4d(ctx, rows, model.n_embd, k, n / k / n_slots, n_slots);
    return model.embedding_scale != 0.0f ? ggml_scale(ctx, rows, model.embedding_scale) : rows;
}

namespace {

constexpr int32_t DFLASH_CANDIDATES = 8;   // candidates per position that are kept of a DFlash drafter

// DFlash: each position's likeliest tokens, regardless of the choice before.
class marginals_selector : public selector {
  public:
    explicit marginals_selector(const drafter_model & model) :
        selector((int32_t) std::min<int64_t>(DFLASH_CANDIDATES, model.n_logits())) {}

    int32_t n_scores() const override { return top_k(); }

    void build(draft_graph & graph, ggml_tensor *, ggml_tensor * logits) const override {
        ggml_context * ctx = graph.ctx.get();
        logits             = proposing_rows(graph, logits);
        graph.ids          = graph.output(ggml_top_k(ctx, logits, top_k()));
        graph.scores       = graph.output(pick(ctx, ggml_soft_max(ctx, logits), graph.ids));
    }

    void finish(draft & drafted, draft_probe * probe) const override {
        sort_candidates(drafted);   // ggml_top_k promises no order
        if (probe) {
            probe->scores = drafted.probs;
            for (float & score : probe->scores) {
                score = std::log(score);
            }
        }
    }
};

// DFlash 2, CandidateSelector of package `dflash`: logit[next] + <next, prev * gate> for every pair of candidates of
// neighbouring positions. The first position's predecessor is the anchor.
class dflash2_selector : public selector {
  public:
    explicit dflash2_selector(const drafter_model & model) : selector(model.selector_top_k), model_(model) {
        fail_if(top_k() > model.n_logits(), "dflash.selector_top_k exceeds the vocabulary");
    }

    int32_t n_scores() const override { return top_k() * top_k(); }

    void build(draft_graph & graph, ggml_tensor * hidden, ggml_tensor * logits) const override {
        const int64_t  n_slots = graph.shape.n_slots(), n_pos = graph.shape.n_pos, k = top_k();
        ggml_context * ctx = graph.ctx.get();

        hidden            = proposing_rows(graph, hidden);
        logits            = proposing_rows(graph, logits);
        ggml_tensor * ids = graph.ids = graph.output(ggml_top_k(ctx, logits, (int) k));

        graph.anchors        = graph.input(ggml_new_tensor_1d(ctx, GGML_TYPE_I32, n_slots));
        ggml_tensor * gate   = ggml_mul_mat(ctx, model_.selector_hidden, hidden);
        gate                 = ggml_reshape_4d(ctx, gate, model_.selector_rank, 1, n_pos, n_slots);
        ggml_tensor * tokens = target_tokens(ctx, model_, ids);
        ggml_tensor * next   = rows_of_candidates(graph, model_.selector_next, tokens);
        ggml_tensor * prev   = rows_before(graph, model_.selector_prev, tokens);
        ggml_tensor * pairs  = ggml_mul_mat(ctx, next, ggml_mul(ctx, prev, gate));   // [next, prev, n_pos, n_slots]
        ggml_tensor * unary  = ggml_reshape_4d(ctx, pick(ctx, logits, ids), k, 1, n_pos, n_slots);
        ggml_tensor * scores = ggml_add(ctx, pairs, unary);
        // k * k scores per position: F16 halves the transfer, so that even 32 candidates take a small part of a step
        const bool packed = graph.transfers.pairs && !graph.shape.probe;
        graph.scores      = graph.output(packed ? ggml_cast(ctx, scores, GGML_TYPE_F16) : scores);
    }

    void finish(draft & drafted, draft_probe * probe) const override { finish_pairs(drafted, probe); }

  private:
    const drafter_model & model_;
};

}   // namespace

std::unique_ptr<selector> make_selector(const drafter_model & model, int32_t n_slots) {
    switch (model.kind->id) {
        case drafter_kind::DSPARK: return std::make_unique<markov_selector>(model);
        case drafter_kind::DFLASH2: return std::make_unique<dflash2_selector>(model);
        case drafter_kind::DOMINO: return std::make_unique<domino_selector>(model);
        case drafter_kind::LILICORR: return std::make_unique<lilicorr_selector>(model, n_slots);
        case drafter_kind::DFLASH:
        case drafter_kind::MTP: break;
    }
    return std::make_unique<marginals_selector>(model);
}

}   // namespace dflash
