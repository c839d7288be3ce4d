#include "draft/domino.h"

#include "base/error.h"

#include <algorithm>

namespace dflash {

namespace {

constexpr int32_t DOMINO_CANDIDATES = 8;    // per position
constexpr int32_t N_GUESSED         = 32;   // the guess is chosen among this many of a position's likeliest tokens

// The nodes of one graph. Dimensions: a row's own, then alternatives (or 1), positions, slots.
class domino_graph {
  public:
    domino_graph(const drafter_model & model, draft_graph & graph, ggml_tensor * hidden, ggml_tensor * logits) :
        model_(model), graph_(graph), ctx_(graph.ctx.get()), n_pos_(graph.shape.n_pos), n_slots_(graph.shape.n_slots()),
        prefix_(std::min<int64_t>(model.domino_prefix, n_pos_)), logits_(logits),
        from_hidden_(split(ggml_mul_mat(ctx_, model.domino_hidden, hidden))) {}

    // Guesses the best chain among the `k` likeliest tokens of each position. Returns the cell's states [size, 1,
    // n_pos, n_slots].
    ggml_tensor * guess(int64_t k) {
        ggml_tensor * ids    = ggml_top_k(ctx_, logits_, (int) k);
        ggml_tensor * unary  = split(pick(ctx_, logits_, ids));
        ggml_tensor * tokens = embed(graph_, model_, ids, k);
        ggml_tensor * heads  = rows_of_out(ids, k);
        ggml_tensor * x      = embed(graph_, model_, graph_.anchors, 1);
        ggml_tensor * h      = nullptr;
        ggml_tensor * states = nullptr;
        for (int64_t i = 0; i < n_pos_; ++i) {
            h      = step(product(ctx_, model_.domino_ih, x), h, h ? product(ctx_, model_.domino_hh, h) : nullptr);
            states = states ? ggml_concat(ctx_, states, h, 2) : h;
            if (i + 1 == n_pos_) {
                break;
            }
            ggml_tensor * scores = position(unary, i);
            if (i >= prefix_) {
                ggml_tensor * z = activation(h, position(from_hidden_, i));
                z      = ggml_mul_mat(ctx_, slot_matrices(heads, i), ggml_reshape_3d(ctx_, z, z->ne[0], 1, n_slots_));
                scores = ggml_add(ctx_, scores, ggml_reshape_4d(ctx_, z, k, 1, 1, n_slots_));
            }
            scores             = ggml_reshape_2d(ctx_, ggml_cont(ctx_, scores), k, n_slots_);
            ggml_tensor * best = ggml_reshape_2d(ctx_, ggml_argmax(ctx_, scores), 1, n_slots_);
            x                  = ggml_reshape_4d(
                ctx_, ggml_get_rows(ctx_, slot_matrices(tokens, i), best), model_.n_embd, 1, 1, n_slots_);
        }
        return states;
    }

    // Logits of all positions [n_vocab, n_out], corrected by these states.
    ggml_tensor * corrected(ggml_tensor * states) {
        ggml_tensor * z   = without_prefix(activation(states, from_hidden_));
        ggml_tensor * out = model_.domino_out;   // has as many tokens as there are logits
        out               = ggml_view_2d(ctx_, out, out->ne[0], logits_->ne[0], out->nb[1], 0);
        return ggml_add(ctx_, logits_, ggml_mul_mat(ctx_, out, ggml_reshape_2d(ctx_, z, z->ne[0], n_pos_ * n_slots_)));
    }

    // Scores of all pairs of neighbouring candidates [k next, k prev, n_pos, n_slots]; the first position's predecessor
    // is the anchor. ids: I32 [k, n_out].
    ggml_tensor * pairs(ggml_tensor * ids, ggml_tensor * states, int64_t k) {
        const int64_t size  = states->ne[0];
        ggml_tensor * after = ggml_repeat_4d(ctx_, positions(states, 0, 1), size, k, 1, n_slots_);   // the anchor's
        if (n_pos_ > 1) {
            ggml_tensor * before = ggml_cont(ctx_, positions(states, 0, n_pos_ - 1));
            ggml_tensor * tokens = ggml_cont(ctx_, positions(embed(graph_, model_, ids, k), 0, n_pos_ - 1));
            ggml_tensor * next =
                step(product(ctx_, model_.domino_ih, tokens), before, product(ctx_, model_.domino_hh, before));
            after = ggml_concat(ctx_, after, next, 2);
        }
        ggml_tensor * z     = without_prefix(activation(after, from_hidden_));
        ggml_tensor * unary = split(pick(ctx_, logits_, ids));
        return ggml_add(ctx_, ggml_mul_mat(ctx_, rows_of_out(ids, k), z), unary);
    }

  private:
    // [n, n_out] -> [n, 1, n_pos, n_slots].
    ggml_tensor * split(ggml_tensor * rows) { return ggml_reshape_4d(ctx_, rows, rows->ne[0], 1, n_pos_, n_slots_); }

    ggml_tensor * positions(ggml_tensor * rows, int64_t from, int64_t n) {
        return ggml_view_4d(ctx_, rows, rows->ne[0], rows->ne[1], n, rows->ne[3], rows->nb[1], rows->nb[2], rows->nb[3],
            (size_t) from * rows->nb[2]);
    }
    ggml_tensor * position(ggml_tensor * rows, int64_t i) { return positions(rows, i, 1); }

    // Matrices of position i of [n, k, n_pos, n_slots]: [n, k, n_slots].
    ggml_tensor * slot_matrices(ggml_tensor * rows, int64_t i) {
        return ggml_view_3d(
            ctx_, rows, rows->ne[0], rows->ne[1], n_slots_, rows->nb[1], rows->nb[3], (size_t) i * rows->nb[2]);
    }

    // Tokens [k, n_out] -> their rows of the output matrix [width, k, n_pos, n_slots].
    ggml_tensor * rows_of_out(ggml_tensor * ids, int64_t k) {
        ggml_tensor * rows = ggml_get_rows(ctx_, model_.domino_out, ggml_reshape_1d(ctx_, ids, k * n_pos_ * n_slots_));
        return ggml_reshape_4d(ctx_, rows, rows->ne[0], k, n_pos_, n_slots_);
    }

    // The gated recurrent cell (torch.nn.GRU without biases): its states after one more token. `tokens` and `states`
    // are products with the cell's matrices, three gates each; without a previous state it is zero. There may be
    // several tokens per state.
    ggml_tensor * step(ggml_tensor * tokens, ggml_tensor * before, ggml_tensor * states) {
        const int64_t size = model_.domino_hh->ne[0];
        const auto    gate = [&](ggml_tensor * gates, int64_t i) {
            return ggml_view_4d(ctx_, gates, size, gates->ne[1], gates->ne[2], gates->ne[3], gates->nb[1], gates->nb[2],
                   gates->nb[3], (size_t) (i * size) * gates->nb[0]);
        };
        const auto sum = [&](int64_t i) {
            return before ? ggml_add(ctx_, gate(tokens, i), gate(states, i)) : ggml_cont(ctx_, gate(tokens, i));
        };
        ggml_tensor * reset  = ggml_sigmoid(ctx_, sum(0));
        ggml_tensor * update = ggml_sigmoid(ctx_, sum(1));
        ggml_tensor * fresh  = before ? ggml_add(ctx_, gate(tokens, 2), ggml_mul(ctx_, reset, gate(states, 2)))
                                      : ggml_cont(ctx_, gate(tokens, 2));
        fresh                = ggml_tanh(ctx_, fresh);
        ggml_tensor * kept   = ggml_sub(ctx_, fresh, ggml_mul(ctx_, update, fresh));
        return before ? ggml_add(ctx_, kept, ggml_mul(ctx_, update, before)) : kept;
    }

    ggml_tensor * activation(ggml_tensor * states, ggml_tensor * from_hidden) {
        return ggml_silu(ctx_, ggml_add(ctx_, product(ctx_, model_.domino_state, states), from_hidden));
    }

    // Zeros the positions that are not corrected.
    ggml_tensor * without_prefix(ggml_tensor * rows) {
        if (prefix_ == 0) {
            return rows;
        }
        if (prefix_ == n_pos_) {
            return ggml_scale(ctx_, rows, 0.0f);
        }
        rows = ggml_cont(ctx_, positions(rows, prefix_, n_pos_ - prefix_));
        return ggml_pad_ext(ctx_, rows, 0, 0, 0, 0, (int) prefix_, 0, 0, 0);
    }

    const drafter_model & model_;
    draft_graph &         graph_;
    ggml_context *        ctx_;
    const int64_t         n_pos_, n_slots_, prefix_;
    ggml_tensor *         logits_;        // [n_vocab, n_out]
    ggml_tensor *         from_hidden_;   // [width, 1, n_pos, n_slots]
};

}   // namespace

domino_selector::domino_selector(const drafter_model & model) :
    selector(std::min<int32_t>(DOMINO_CANDIDATES, (int32_t) model.n_logits())), model_(model) {
    fail_if(model.domino_out->ne[1] < model.n_logits(), "domino_out.weight is for ", model.domino_out->ne[1],
        " tokens, the logits for ", model.n_logits());
}

void domino_selector::build(draft_graph & graph, ggml_tensor * hidden, ggml_tensor * logits) const {
    ggml_context * ctx = graph.ctx.get();
    graph.anchors      = graph.input(ggml_new_tensor_1d(ctx, GGML_TYPE_I32, graph.shape.n_slots()));
    hidden             = proposing_rows(graph, hidden);
    logits             = proposing_rows(graph, logits);

    domino_graph  domino(model_, graph, hidden, logits);
    ggml_tensor * states = domino.guess(std::min<int64_t>(N_GUESSED, logits->ne[0]));
    ggml_tensor * ids    = ggml_top_k(ctx, domino.corrected(states), top_k());
    graph.ids            = graph.output(ids);
    graph.scores         = graph.output(domino.pairs(ids, states, top_k()));
}

}   // namespace dflash
