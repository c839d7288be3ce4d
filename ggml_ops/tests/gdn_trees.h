// Inputs of the delta-net tree ops for tests, and their expected results: in float64, and from the stock op.

#pragma once

#include "gdn/gdn_tree.h"

#include "check.h"

#include "ggml-cpu.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

namespace gdn_trees {

static std::mt19937 rng(1);

struct shape {
    int  S, H_k, H, T, n;
    bool channels;
};

// Trees of one pass: random, chain, star (kind 0, 1, 2); some rows are padding.
inline std::vector<int32_t> make_parents(const shape & s, int kind, int n_padding) {
    std::vector<int32_t> parent(s.T * s.n, GGML_GDN_PADDING);
    for (int b = 0; b < s.n; ++b) {
        const int T = std::max(1, s.T - b * n_padding);
        for (int t = 0; t < T; ++t) {
            const int random    = (int) (rng() % (t + 1)) - 1;
            parent[b * s.T + t] = kind == 0 ? (rng() % 2 ? random : t - 1) : kind == 1 ? t - 1 : -1;
        }
    }
    return parent;
}

// The cases for every backend's ops: work(shape, kind, n_padding). Without `all`, one tree of each width.
template <typename F> void for_each_case(bool all, const F & work) {
    for (const bool channels : { false, true }) {
        for (int kind = 0; kind < 3; ++kind) {
            if (all || kind == 0) {
                work(shape{ 64, 2, 4, 16, 2, channels }, kind, 5);
            }
            if (all || kind == 2) {
                work(shape{ 128, 1, 3, 11, 1, channels }, kind, 0);
            }
        }
        work(shape{ 128, 2, 2, 1, 3, channels }, 1, 0);
        if (all) {
            work(shape{ 64, 1, 2, 64, 1, channels }, 0, 0);
        }
        work(shape{ 64, 1, 1, 64, 1, channels }, 1, 0);
        if (all) {
            work(shape{ 64, 2, 6, 33, 2, channels }, 0, 7);
        }
    }
}

inline std::vector<int> path_to(const int32_t * parent, int t) {
    std::vector<int> path;
    for (; t >= 0; t = parent[t]) {
        path.insert(path.begin(), t);
    }
    return path;
}

// Inputs of one pass. Rows are not contiguous, like views into wider tensors.
struct inputs {
    shape          s;
    ggml_context * ctx;
    ggml_tensor *  q, *k, *v, *g, *beta, *state, *parent;

    ggml_tensor * rows(int ne0, int ne1, int gap) {
        ggml_tensor * wide = ggml_new_tensor_4d(ctx, GGML_TYPE_F32, ne0, ne1 + gap, s.T, s.n);
        for (int64_t i = 0; i < ggml_nelements(wide); ++i) {
            ((float *) wide->data)[i] = NAN;
        }
        return gap ? ggml_view_4d(
                         ctx, wide, ne0, ne1, s.T, s.n, wide->nb[1], wide->nb[2], wide->nb[3], gap * wide->nb[1])
                   : wide;
    }

    inputs(const shape & s, const std::vector<int32_t> & parents) :
        s(s), ctx(ggml_init({ 512u << 20, nullptr, false })) {
        std::normal_distribution<float>       normal;
        std::uniform_real_distribution<float> uniform;
        q = rows(s.S, s.H_k, 1), k = rows(s.S, s.H_k, 2), v = rows(s.S, s.H, 1), g = rows(s.channels ? s.S : 1, s.H, 0),
        beta   = rows(1, s.H, 0);
        state  = ggml_new_tensor_4d(ctx, GGML_TYPE_F32, s.S, s.S, s.H, s.n);
        parent = ggml_new_tensor_2d(ctx, GGML_TYPE_I32, s.T, s.n);
        std::memcpy(parent->data, parents.data(), ggml_nbytes(parent));
        for (int64_t i = 0; i < ggml_nelements(state); ++i) {
            ((float *) state->data)[i] = 0.3f * normal(rng);
        }
        for (ggml_tensor * x : { q, k, v, g, beta }) {
            for (int b = 0; b < s.n; ++b)
                for (int t = 0; t < s.T; ++t)
                    for (int h = 0; h < x->ne[1]; ++h) {
                        float *row = at(x, h, t, b), sum = 0;
                        for (int i = 0; i < x->ne[0]; ++i) {
                            row[i] = x == g      ? -2.0f * uniform(rng) * uniform(rng)
                                     : x == beta ? uniform(rng)
                                                 : normal(rng);
                            sum += row[i] * row[i];
                        }
                        for (int i = 0; i < x->ne[0] && (x == q || x == k); ++i) {
                            row[i] /= std::sqrt(sum);
                        }
                    }
        }
    }
    ~inputs() { ggml_free(ctx); }

    static float * at(const ggml_tensor * x, int i1, int i2, int i3) {
        return (float *) ((char *) x->data + i1 * x->nb[1] + i2 * x->nb[2] + i3 * x->nb[3]);
    }
    const int32_t * parents(int b) const { return (const int32_t *) parent->data + b * s.T; }

    bool is_leaf(int b, int t) const { return std::find(parents(b) + t, parents(b) + s.T, t) == parents(b) + s.T; }

    // A path of one sequence for ggml_gdn_commit; the others keep their states.
    ggml_tensor * ids_of(const std::vector<int> & path, int b) {
        ggml_tensor * ids = ggml_new_tensor_2d(ctx, GGML_TYPE_I32, std::min<int>(path.size() + b, 64), s.n);
        for (int64_t i = 0; i < ggml_nelements(ids); ++i) {
            const int64_t p            = i - b * ids->ne[0];
            ((int32_t *) ids->data)[i] = p >= 0 && p < (int64_t) path.size() ? path[p] : -1;
        }
        return ids;
    }

    void compute(ggml_tensor * x, int threads) {
        ggml_cgraph * graph = ggml_new_graph(ctx);
        ggml_build_forward_expand(graph, x);
        CHECK(ggml_graph_compute_with_ctx(ctx, graph, threads) == GGML_STATUS_SUCCESS);
    }
    ggml_tensor * tree(int threads) {
        ggml_tensor * x = ggml_gdn_tree(ctx, q, k, v, g, beta, state, parent);
        compute(x, threads);
        return x;
    }
    // The rows of one path of one sequence, as a separate chain through the stock op.
    ggml_tensor * stock(int b, const std::vector<int> & path) {
        ggml_tensor * in[5] = { q, k, v, g, beta };
        for (ggml_tensor *& x : in) {
            ggml_tensor * chain = ggml_new_tensor_4d(ctx, GGML_TYPE_F32, x->ne[0], x->ne[1], path.size(), 1);
            for (size_t i = 0; i < path.size(); ++i)
                for (int h = 0; h < x->ne[1]; ++h) {
                    std::memcpy(at(chain, h, i, 0), at(x, h, path[i], b), x->ne[0] * sizeof(float));
                }
            x = chain;
        }
        ggml_tensor * one =
            ggml_view_4d(ctx, state, s.S, s.S, s.H, 1, state->nb[1], state->nb[2], state->nb[3], b * state->nb[3]);
        ggml_tensor * x = ggml_gated_delta_net(ctx, in[0], in[1], in[2], in[3], in[4], one, 1);
        compute(x, 1);
        return x;
    }
    // float64: output of the path's last row for one head, and the state.
    std::vector<double> reference(int b, int h, const std::vector<int> & path, std::vector<double> & S) const {
        const float * from = at(state, 0, h, b);
        S.assign(from, from + s.S * s.S);
        std::vector<double> o(s.S);
        for (const int t : path) {
            const float *k_t = at(k, h % s.H_k, t, b), *q_t = at(q, h % s.H_k, t, b), *v_t = at(v, h, t, b),
                        *g_t = at(g, h, t, b);
            for (int j = 0; j < s.S; ++j) {
                double sum = 0, out = 0, *column = &S[j * s.S];
                for (int i = 0; i < s.S; ++i) {
                    column[i] *= std::exp((double) g_t[s.channels ? i : 0]);
                    sum += column[i] * k_t[i];
                }
                const double delta = (v_t[j] - sum) * *at(beta, h, t, b);
                for (int i = 0; i < s.S; ++i) {
                    column[i] += delta * k_t[i];
                    out += column[i] * q_t[i];
                }
                o[j] = out / std::sqrt((double) s.S);
            }
        }
        return o;
    }
};

inline double error(const float * got, const std::vector<double> & want) {
    double worst = 0, scale = 0;
    for (size_t i = 0; i < want.size(); ++i) {
        worst = std::max(worst, std::isfinite(got[i]) ? std::fabs(got[i] - want[i]) : INFINITY);
        scale = std::max(scale, std::fabs(want[i]));
    }
    return worst / scale;
}

inline bool same(const void * a, const void * b, size_t floats) {
    return std::memcmp(a, b, floats * sizeof(float)) == 0;
}

}   // namespace gdn_trees
