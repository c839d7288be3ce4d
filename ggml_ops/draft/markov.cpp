#include "draft/markov.h"

#include "base/error.h"
#include "ggml-backend.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace dflash {

namespace {

constexpr int32_t MARKOV_CANDIDATES = 16;   // per position

// Weight of the confidence head's log-odds relative to those of the best candidate's own probability. Fitted to what
// was accepted of the pocket drafters: docs/budget.md.
constexpr float CONFIDENCE_WEIGHT = 0.3f;

float log_odds(float probability) {
    const float p = std::clamp(probability, 1e-4f, 1 - 1e-4f);
    return std::log(p / (1 - p));
}

// Corrects the probability of the best of k candidates by the confidence head. The others share the rest in proportion
// but stay behind it: the head has no say in which candidate is the best.
void apply_confidence(float confidence, float * probs, int32_t k) {
    float *     best   = std::max_element(probs, probs + k);
    const float before = std::min(*best, 1 - 1e-4f);
    const float after  = 1 / (1 + std::exp(-log_odds(before) - CONFIDENCE_WEIGHT * log_odds(confidence)));
    for (int32_t r = 0; r < k; ++r) {
        probs[r] = std::min(probs[r] * (1 - after) / (1 - before), 0.999f * after);
    }
    *best = after;
}

}   // namespace

markov_selector::markov_selector(const drafter_model & model) :
    selector(std::min<int32_t>(MARKOV_CANDIDATES, (int32_t) model.n_logits())), model_(model) {}

// Scores all pairs of neighbouring candidates. ids: I32 [k, n_out].
markov_selector::candidates markov_selector::score(draft_graph & graph, ggml_tensor * logits, ggml_tensor * ids) const {
    ggml_context * ctx   = graph.ctx.get();
    ggml_tensor *  next  = rows_of_candidates(graph, model_.markov_next, ids);
    ggml_tensor *  prev  = rows_before(graph, model_.markov_prev, target_tokens(ctx, model_, ids));
    ggml_tensor *  unary = pick(ctx, logits, ids);
    unary                = ggml_reshape_4d(ctx, unary, top_k(), 1, graph.shape.n_pos, graph.shape.n_slots());
    return { ids, ggml_add(ctx, ggml_mul_mat(ctx, next, prev), unary), prev };
}

// The greedy path through the candidates, from left to right. Returns the embeddings of the tokens before each position
// [rank, n_out].
ggml_tensor * markov_selector::guess(draft_graph & graph, const candidates & c) const {
    const int64_t  n_slots = graph.shape.n_slots(), n_pos = graph.shape.n_pos, k = top_k(), rank = model_.markov_rank;
    ggml_context * ctx  = graph.ctx.get();
    ggml_tensor *  path = ggml_reshape_3d(ctx, ggml_get_rows(ctx, model_.markov_prev, graph.anchors), rank, 1, n_slots);
    ggml_tensor *  chosen = nullptr;   // I32 [1, n_slots]: index of the candidate
    for (int64_t i = 0; i + 1 < n_pos; ++i) {
        ggml_tensor * rows = ggml_view_3d(ctx, c.pairs, k, chosen ? k : 1, n_slots, c.pairs->nb[1], c.pairs->nb[3],
            (size_t) i * c.pairs->nb[2]);   // [next, prev, n_slots]
        rows               = chosen ? ggml_get_rows(ctx, rows, chosen) : ggml_cont(ctx, rows);
        chosen             = ggml_reshape_2d(ctx, ggml_argmax(ctx, ggml_reshape_2d(ctx, rows, k, n_slots)), 1, n_slots);
        ggml_tensor * ids =
            ggml_view_3d(ctx, c.ids, 1, k, n_slots, c.ids->nb[0], c.ids->nb[1] * n_pos, (size_t) i * c.ids->nb[1]);
        ggml_tensor * token = ggml_reshape_1d(ctx, ggml_get_rows(ctx, ids, chosen), n_slots);
        ggml_tensor * row   = ggml_get_rows(ctx, model_.markov_prev, target_tokens(ctx, model_, token));
        path                = ggml_concat(ctx, path, ggml_reshape_3d(ctx, row, rank, 1, n_slots), 1);
    }
    return ggml_reshape_2d(ctx, path, rank, n_pos * n_slots);
}

// The confidence head: sigmoid(<weight, [hidden; embedding of the previous token]> + bias), [k prev, 1, n_pos,
// n_slots].
ggml_tensor * markov_selector::confidence(draft_graph & graph, ggml_tensor * hidden, const candidates & c) const {
    const int64_t  n_slots = graph.shape.n_slots(), n_pos = graph.shape.n_pos, n_embd = model_.n_embd;
    ggml_context * ctx    = graph.ctx.get();
    ggml_tensor *  weight = model_.confidence;
    ggml_tensor *  row    = ggml_mul_mat(ctx, ggml_view_1d(ctx, weight, n_embd, 0), hidden);
    if (model_.confidence_bias) {
        row = ggml_add(ctx, row, model_.confidence_bias);
    }
    ggml_tensor * pair =
        ggml_mul_mat(ctx, ggml_view_1d(ctx, weight, model_.markov_rank, ggml_row_size(weight->type, n_embd)), c.prev);
    pair = ggml_add(ctx, pair, ggml_reshape_4d(ctx, row, 1, 1, n_pos, n_slots));
    return ggml_reshape_4d(ctx, ggml_sigmoid(ctx, pair), top_k(), 1, n_pos, n_slots);
}

void markov_selector::build(draft_graph & graph, ggml_tensor * hidden, ggml_tensor * logits) const {
    const int64_t  n_slots = graph.shape.n_slots(), n_pos = graph.shape.n_pos, k = top_k();
    ggml_context * ctx = graph.ctx.get();
    hidden             = proposing_rows(graph, hidden);
    logits             = proposing_rows(graph, logits);
    graph.anchors      = graph.input(ggml_new_tensor_1d(ctx, GGML_TYPE_I32, n_slots));

    const candidates first = score(graph, logits, ggml_top_k(ctx, logits, (int) k));
    ggml_tensor *    table = model_.markov_next;   // has as many tokens as there are logits
    table                  = ggml_view_2d(ctx, table, table->ne[0], logits->ne[0], table->nb[1], 0);
    ggml_tensor *    full  = ggml_add(ctx, logits, ggml_mul_mat(ctx, table, guess(graph, first)));
    const candidates c     = score(graph, logits, ggml_top_k(ctx, full, (int) k));

    const auto    column = [&](ggml_tensor * t) { return ggml_reshape_4d(ctx, t, k, 1, n_pos, n_slots); };
    ggml_tensor * out    = ggml_concat(ctx, c.pairs, column(pick(ctx, full, c.ids)), 1);
    out                  = ggml_concat(ctx, out, column(pick(ctx, ggml_soft_max(ctx, full), c.ids)), 1);
    if (model_.confidence) {
        out = ggml_concat(ctx, out, confidence(graph, hidden, c), 1);
    }
    graph.ids    = graph.output(c.ids);
    graph.scores = graph.output(out);
}

// For each position: k rows of pair scores; then every candidate's score and its probability given the guessed chain;
// then the confidence for every previous candidate.
//
// A row's probabilities are over the whole vocabulary: tokens that are not candidates keep the weight that they have
// after the guessed chain. For the chain itself this is exact.
void markov_selector::finish(draft & drafted, draft_probe * probe) const {
    const int32_t      k = top_k();
    std::vector<float> probs;
    probs.reserve((size_t) drafted.positions() * k * k);
    std::vector<float> pairs;
    for (int32_t i = 0; i < drafted.positions(); ++i) {
        const float * rows   = drafted.probs.data() + (size_t) i * n_scores();
        const float * scores = rows + k * k;
        const float * given  = scores + k;
        const float * trust  = model_.confidence ? given + k : nullptr;
        const int32_t best   = (int32_t) (std::max_element(scores, scores + k) - scores);
        float         rest   = 1;   // of the chain's row
        for (int32_t r = 0; r < k; ++r) {
            rest -= given[r];
        }
        // exp(x - log_all) is a probability after the chain
        const float log_all = scores[best] - std::log(std::max(given[best], 1e-30f));
        for (int32_t pred = 0; pred < k; ++pred) {
            const float * row = rows + pred * k;
            const float   top = std::max(*std::max_element(row, row + k), log_all);
            float         sum = std::max(rest, 0.0f) * std::exp(log_all - top);
            for (int32_t r = 0; r < k; ++r) {
                sum += std::exp(row[r] - top);
            }
            for (int32_t r = 0; r < k; ++r) {
                probs.push_back(std::exp(row[r] - top) / sum);
            }
            if (trust) {
                apply_confidence(trust[pred], probs.data() + probs.size() - k, k);
            }
        }
        if (probe) {
            pairs.insert(pairs.end(), rows, rows + k * k);
        }
    }
    if (probe) {
        probe->scores = std::move(pairs);
    }
    drafted.probs = std::move(probs);
}

}   // namespace dflash
