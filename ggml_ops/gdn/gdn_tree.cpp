// Constructors of the delta-net tree ops, part of ggml-base.

#include "gdn/gdn_tree.h"

#include <algorithm>
#include <initializer_list>

static bool is_rows(const ggml_tensor * t, int64_t ne0, int64_t ne1, int64_t ne2, int64_t ne3) {
    return t->type == GGML_TYPE_F32 && ggml_is_contiguous_rows(t) && t->ne[0] == ne0 && t->ne[1] == ne1 &&
           t->ne[2] == ne2 && t->ne[3] == ne3;
}

static bool is_ids(const ggml_tensor * t, int64_t n) {
    return t->type == GGML_TYPE_I32 && ggml_is_contiguous(t) && t->ne[0] >= 1 && t->ne[0] <= GGML_GDN_MAX_ROWS &&
           t->ne[1] == n && t->ne[2] == 1 && t->ne[3] == 1;
}

static bool is_state(const ggml_tensor * t, int64_t S, int64_t H, int64_t n) {
    return is_rows(t, S, S, H, n) && t->nb[1] == S * sizeof(float) && t->nb[2] == S * t->nb[1];
}

static ggml_tensor * as_op(ggml_tensor * result, ggml_op op, std::initializer_list<ggml_tensor *> sources) {
    result->op = op;
    std::copy(sources.begin(), sources.end(), result->src);
    return result;
}

ggml_tensor * ggml_gdn_tree(ggml_context * ctx, ggml_tensor * q, ggml_tensor * k, ggml_tensor * v, ggml_tensor * g,
    ggml_tensor * beta, ggml_tensor * state, ggml_tensor * parent) {
    const int64_t S = v->ne[0], H = v->ne[1], T = v->ne[2], n = v->ne[3], H_k = k->ne[1];
    GGML_ASSERT(T >= 1 && T <= GGML_GDN_MAX_ROWS);
    GGML_ASSERT(H % H_k == 0);
    GGML_ASSERT(is_rows(v, S, H, T, n) && is_rows(q, S, H_k, T, n) && is_rows(k, S, H_k, T, n));
    GGML_ASSERT(is_rows(g, g->ne[0], H, T, n) && (g->ne[0] == 1 || g->ne[0] == S));
    GGML_ASSERT(is_rows(beta, 1, H, T, n));
    GGML_ASSERT(is_state(state, S, H, n));
    GGML_ASSERT(is_ids(parent, n) && parent->ne[0] == T);

    ggml_tensor * result = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, S * H, 2 * T * n);
    return as_op(result, GGML_OP_GDN_TREE, { q, k, v, g, beta, state, parent });
}

static ggml_tensor * half_of(ggml_context * ctx, ggml_tensor * tree, int half) {
    GGML_ASSERT(tree->op == GGML_OP_GDN_TREE);
    const ggml_tensor * v   = tree->src[2];
    const size_t        row = v->ne[0] * sizeof(float);
    return ggml_view_4d(ctx, tree, v->ne[0], v->ne[1], v->ne[2], v->ne[3], row, row * v->ne[1],
        row * v->ne[1] * v->ne[2], half * ggml_nelements(v) * sizeof(float));
}

ggml_tensor * ggml_gdn_tree_output(ggml_context * ctx, ggml_tensor * tree) { return half_of(ctx, tree, 0); }
ggml_tensor * ggml_gdn_tree_delta(ggml_context * ctx, ggml_tensor * tree) { return half_of(ctx, tree, 1); }

ggml_tensor * ggml_gdn_commit(ggml_context * ctx, ggml_tensor * state, ggml_tensor * k, ggml_tensor * delta,
    ggml_tensor * g, ggml_tensor * path) {
    const int64_t S = delta->ne[0], H = delta->ne[1], T = delta->ne[2], n = delta->ne[3], H_k = k->ne[1];
    GGML_ASSERT(T >= 1 && T <= GGML_GDN_MAX_ROWS);
    GGML_ASSERT(H % H_k == 0);
    GGML_ASSERT(is_state(state, S, H, n));
    GGML_ASSERT(is_rows(delta, S, H, T, n) && is_rows(k, S, H_k, T, n));
    GGML_ASSERT(is_rows(g, g->ne[0], H, T, n) && (g->ne[0] == 1 || g->ne[0] == S));
    GGML_ASSERT(is_ids(path, n));

    ggml_tensor * result = ggml_new_tensor_4d(ctx, GGML_TYPE_F32, S, S, H, n);
    return as_op(result, GGML_OP_GDN_COMMIT, { state, k, delta, g, path });
}

bool ggml_gdn_supported(const ggml_tensor * op) {
    const int64_t S = op->src[op->op == GGML_OP_GDN_TREE ? 2 : 0]->ne[0];
    return S == 64 || S == 128;   // everything else is checked when the op is created
}
