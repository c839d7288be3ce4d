#include "accept/block_accept.h"

#include "base/error.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace dflash {

int32_t seeded_decisions::pick(const std::vector<double> & weights) {
    double  left = roll() * std::accumulate(weights.begin(), weights.end(), 0.0);
    int32_t last = -1;
    for (int32_t i = 0; i < (int32_t) weights.size(); ++i) {
        if (weights[i] > 0) {
            last = i;
            if ((left -= weights[i]) < 0) {
                break;
            }
        }
    }
    return last;   // left over by rounding: take the last possible one
}

// ---- drawing ----

void drawn_chain::truncate(int32_t n) {
    n = std::clamp(n, 0, length());
    tokens.resize(n);
    candidates.resize(n);
    rows.resize((size_t) n * top_k);
    best.resize(n);
}

tree drawn_chain::to_tree() const {
    tree t;
    t.nodes.push_back(node::root(anchor));
    for (int32_t i = 0; i < length(); ++i) {
        node n;
        n.token     = tokens[i];
        n.parent    = i;
        n.depth     = i + 1;
        n.candidate = candidates[i];
        n.prob      = best[i];
        n.value     = t.nodes[i].value * best[i];
        t.nodes.push_back(n);
    }
    return t;
}

namespace {

// Applies the request's top-k, top-p, min-p and temperature to a row of the draft, in llama.cpp's order. The weights
// need not sum to 1.
void bend(const draft_shape & shape, std::vector<double> & weights, std::vector<int32_t> & order) {
    order.resize(weights.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(),
        [&](int32_t a, int32_t b) { return weights[a] != weights[b] ? weights[a] > weights[b] : a < b; });
    const double best = weights[order[0]], total = std::accumulate(weights.begin(), weights.end(), 0.0);
    double       sum = 0;
    for (size_t rank = 0; rank < order.size(); ++rank) {
        double &   w  = weights[order[rank]];
        const bool in = rank == 0 || ((shape.top_k <= 0 || (int32_t) rank < shape.top_k) && sum < shape.top_p * total &&
                                         w >= shape.min_p * best);
        sum += w;
        w = in ? std::pow(w / best, 1 / shape.temperature) : 0;
    }
}

}   // namespace

drawn_chain draw_chain(
    const draft & d, int32_t anchor, int32_t length, const draft_shape & shape, random_decisions & random) {
    drawn_chain c;
    c.anchor = anchor;
    c.top_k  = d.top_k;
    std::vector<double>  weights(d.top_k);
    std::vector<int32_t> order;
    int32_t              pred = 0;
    for (int32_t depth = 1; depth <= std::min(length, d.positions()); ++depth) {
        const float * row = d.row(depth, pred);
        for (int32_t i = 0; i < d.top_k; ++i) {
            weights[i] = row[i] > 0 && std::isfinite(row[i]) ? row[i] : 0;
            for (int32_t j = 0; j < i; ++j) {   // a duplicate token would have two probabilities
                weights[i] = d.id(depth, i) == d.id(depth, j) ? 0 : weights[i];
            }
        }
        const float best = (float) *std::max_element(weights.begin(), weights.end());
        if (!(best > 0)) {
            break;   // ignore a damaged row
        }
        bend(shape, weights, order);
        pred             = random.pick(weights);
        const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
        for (int32_t i = 0; i < d.top_k; ++i) {
            c.rows.push_back({ d.id(depth, i), weights[i] / sum });
        }
        c.tokens.push_back(d.id(depth, pred));
        c.candidates.push_back(pred);
        c.best.push_back(best);
    }
    return c;
}

// ---- acceptance ----

namespace {

// q of one row, by token. Most of the target's tokens are not in the row; a mask over the low bits of its tokens rules
// out most of them quickly.
class row_probs {
  public:
    row_probs(const token_prob * row, int32_t n) {
        for (int32_t i = 0; i < n; ++i) {
            if (row[i].prob > 0) {
                found_.push_back(row[i]);
                bits_ |= bit(row[i].token);
            }
        }
    }

    double at(int32_t token) const {
        if (bits_ & bit(token)) {
            for (const token_prob & t : found_) {
                if (t.token == token) {
                    return t.prob;
                }
            }
        }
        return 0;
    }

  private:
    static uint64_t bit(int32_t token) { return uint64_t(1) << (token & 63); }

    std::vector<token_prob> found_;
    uint64_t                bits_ = 0;
};

}   // namespace

// `reach` is the paper's p_i: the probability, given the decisions so far, that at least i tokens are accepted. The
// longest accepted prefix wins. Each accepted prefix draws its bonus at once and a longer one replaces it, so no row of
// the target is needed twice.
block_result block_accept(const drawn_chain & chain, const target_rows & target, random_decisions & random) {
    block_result        result;
    std::vector<double> weights;
    double              reach = 1;
    for (int32_t i = 0;; ++i) {
        const std::vector<token_prob> & p = target(i);
        fail_if(p.empty(), "the target's distribution is empty");
        weights.clear();
        if (i == chain.length()) {
            if (i == 0 || random.happens(reach)) {
                for (const token_prob & t : p) {
                    weights.push_back(t.prob);
                }
                result = { i, p[random.pick(weights)].token };
            }
            return result;
        }

        // The residual: where the target's probability exceeds what the draft can cover.
        const row_probs q(chain.row(i), chain.top_k);
        double          rest = 0, drawn = 0;
        for (const token_prob & t : p) {
            weights.push_back(std::max(reach * t.prob - q.at(t.token), 0.0));
            rest += weights.back();
            if (t.token == chain.tokens[i]) {
                drawn = t.prob;
            }
        }
        // No residual (p = q): the next token is accepted anyway, so there is nothing to decide.
        if (rest > 0 && (i == 0 || random.happens(rest / (rest + (1 - reach))))) {
            result = { i, p[random.pick(weights)].token };
        } else if (i == 0) {
            result = { 0, p[0].token };   // only through rounding
        }
        reach = std::min(1.0, reach * drawn / chain.q(i));
        if (!(reach > 0)) {
            return result;   // a longer prefix cannot be accepted
        }
    }
}

}   // namespace dflash
