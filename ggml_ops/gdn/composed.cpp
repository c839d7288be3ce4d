// The delta-net tree ops from ggml's own ops, part of ggml-base. The formulas are in docs/hybrid.md.

#include "gdn/composed.h"

#include <algorithm>
#include <cmath>

// [x, H, T, n] -> [x, T, H, n], dense.
static ggml_tensor * heads_out(ggml_context * ctx, ggml_tensor * t) {
    return ggml_cont(ctx, ggml_permute(ctx, t, 0, 2, 1, 3));
}

static ggml_tensor * transposed(ggml_context * ctx, ggml_tensor * t) { return ggml_cont(ctx, ggml_transpose(ctx, t)); }

static ggml_tensor * exact_mul_mat(ggml_context * ctx, ggml_tensor * a, ggml_tensor * b) {
    ggml_tensor * result = ggml_mul_mat(ctx, a, b);
    ggml_prec_set_acc(result, GGML_PREC_F32);
    return result;
}

// Value head h reads key head h % H_k, so the whole set of key heads repeats.
static ggml_tensor * for_heads(ggml_context * ctx, ggml_tensor * t, int64_t H) {
    return ggml_repeat_4d(ctx, t, t->ne[0], t->ne[1], H, t->ne[3]);
}

// Gates summed over the rows that `mask` [T, rows, 1, n] names: [rows, H, 1, n].
static ggml_tensor * gate_sums(ggml_context * ctx, ggml_tensor * g, ggml_tensor * mask) {
    ggml_tensor * by_row = transposed(ctx, ggml_reshape_4d(ctx, ggml_cont(ctx, g), g->ne[1], g->ne[2], 1, g->ne[3]));
    return exact_mul_mat(ctx, mask, by_row);
}

gdn_tree_parts ggml_gdn_tree_composed(ggml_context * ctx, ggml_tensor * q, ggml_tensor * k, ggml_tensor * v,
    ggml_tensor * g, ggml_tensor * beta, ggml_tensor * state, ggml_tensor * mask) {
    const int64_t S = v->ne[0], H = v->ne[1], T = v->ne[2], n = v->ne[3];
    GGML_ASSERT(g->ne[0] == 1 && H % k->ne[1] == 0);
    GGML_ASSERT(mask->type == GGML_TYPE_F32 && ggml_is_contiguous(mask) && mask->ne[0] == T && mask->ne[1] == T &&
                mask->ne[2] == 1 && mask->ne[3] == n);
    q = heads_out(ctx, q), k = heads_out(ctx, k), v = heads_out(ctx, v), beta = heads_out(ctx, beta);

    // Decay between rows: exp only where there is a path, so that no exponent is positive.
    ggml_tensor * sums  = gate_sums(ctx, g, mask);   // [T, H, 1, n]
    ggml_tensor * to    = ggml_repeat_4d(ctx, ggml_reshape_4d(ctx, sums, 1, T, H, n), T, T, H, n);
    ggml_tensor * way   = ggml_mul(ctx, ggml_sub(ctx, to, ggml_reshape_4d(ctx, sums, T, 1, H, n)), mask);
    ggml_tensor * decay = ggml_mul(ctx, ggml_exp(ctx, way), mask);   // [a, t, H, n]
    ggml_tensor * k_k   = ggml_mul(ctx, decay, exact_mul_mat(ctx, k, k));
    ggml_tensor * q_k   = ggml_mul(ctx, decay, exact_mul_mat(ctx, k, q));

    // The committed state's contribution, [S, T, H, n]; zero for padding rows.
    ggml_tensor * valid =
        ggml_cont(ctx, ggml_view_4d(ctx, mask, 1, T, 1, n, mask->nb[1] + mask->nb[0], mask->nb[2], mask->nb[3], 0));
    ggml_tensor * gone = ggml_reshape_4d(ctx, ggml_exp(ctx, sums), 1, T, H, n);
    ggml_tensor * s_k  = ggml_mul(ctx, exact_mul_mat(ctx, state, for_heads(ctx, k, H)), gone);
    ggml_tensor * s_q  = ggml_mul(ctx, ggml_mul(ctx, exact_mul_mat(ctx, state, for_heads(ctx, q, H)), gone), valid);

    ggml_tensor * above = ggml_mul(ctx, ggml_tri(ctx, k_k, GGML_TRI_TYPE_LOWER), beta);
    ggml_tensor * one   = ggml_diag(ctx, ggml_fill(ctx, ggml_view_1d(ctx, above, T, 0), 1.0f));
    ggml_tensor * right = ggml_mul(ctx, ggml_mul(ctx, ggml_sub(ctx, v, s_k), beta), valid);
    ggml_tensor * delta = ggml_solve_tri(ctx, ggml_add(ctx, above, one), right, true, true, false);   // [S, T, H, n]
    ggml_tensor * o     = ggml_add(ctx, s_q, exact_mul_mat(ctx, transposed(ctx, delta), q_k));
    return { heads_out(ctx, ggml_scale(ctx, o, 1.0f / std::sqrt((float) S))), heads_out(ctx, delta) };
}

ggml_tensor * ggml_gdn_commit_composed(ggml_context * ctx, ggml_tensor * state, ggml_tensor * k, ggml_tensor * delta,
    ggml_tensor * g, ggml_tensor * mask) {
    const int64_t H = delta->ne[1], T = delta->ne[2], n = delta->ne[3];
    GGML_ASSERT(g->ne[0] == 1 && H % k->ne[1] == 0);
    GGML_ASSERT(mask->type == GGML_TYPE_F32 && ggml_is_contiguous(mask) && mask->ne[0] == T && mask->ne[1] == T + 2 &&
                mask->ne[2] == 1 && mask->ne[3] == n);

    ggml_tensor * decay = ggml_exp(ctx, gate_sums(ctx, g, mask));   // [T + 2, H, 1, n]
    ggml_tensor * rows  = ggml_reshape_4d(
        ctx, ggml_cont(ctx, ggml_view_3d(ctx, decay, T, H, n, decay->nb[1], decay->nb[3], 0)), T, 1, H, n);
    ggml_tensor * all = ggml_reshape_4d(ctx,
        ggml_cont(ctx, ggml_view_3d(ctx, decay, 1, H, n, decay->nb[1], decay->nb[3], T * decay->nb[0])), 1, 1, H, n);
    ggml_tensor * on =
        ggml_view_4d(ctx, mask, T, 1, 1, n, mask->nb[1], mask->nb[2], mask->nb[3], (T + 1) * mask->nb[1]);
    ggml_tensor * k_t = for_heads(ctx, ggml_cont(ctx, ggml_permute(ctx, k, 1, 2, 0, 3)), H);   // [T, S, H, n]
    ggml_tensor * d_t = ggml_cont(ctx, ggml_permute(ctx, delta, 1, 2, 0, 3));
    k_t               = ggml_mul(ctx, ggml_mul(ctx, k_t, rows), on);
    return ggml_add(ctx, ggml_mul(ctx, state, all), exact_mul_mat(ctx, k_t, d_t));
}

void ggml_gdn_tree_mask(const int32_t * parent, int64_t T, int64_t n, float * mask) {
    std::fill_n(mask, T * T * n, 0.0f);
    for (int64_t i = 0; i < T * n; ++i) {
        for (int64_t a = i % T; a >= 0 && parent[i] != GGML_GDN_PADDING; a = parent[i - i % T + a]) {
            mask[i * T + a] = 1.0f;
        }
    }
}

void ggml_gdn_commit_mask(const int32_t * path, int64_t P, int64_t T, int64_t n, float * mask) {
    std::fill_n(mask, T * (T + 2) * n, 0.0f);
    for (int64_t b = 0; b < n; ++b, path += P, mask += T * (T + 2)) {
        for (int64_t p = 0; p < P && path[p] >= 0; ++p) {
            for (int64_t before = 0; before < p; ++before) {
                mask[path[before] * T + path[p]] = 1.0f;
            }
            mask[T * T + path[p]] = mask[(T + 1) * T + path[p]] = 1.0f;
        }
    }
}
