#include "cpu/fused_chain.h"

#include "cpu/gemm/packed_gemm.h"
#include "cpu/isa/kernels.h"
#include "cpu/tensor_rows.h"
#include "ggml-impl.h"

#include <algorithm>

namespace dflash {

namespace {

constexpr int MAX_DISTANCE = 24;   // most nodes between products of one input

// The next node that computes something.
int next_node(const ggml_cgraph * graph, int at) {
    do {
        ++at;
    } while (at < graph->n_nodes &&
             (ggml_op_is_empty(graph->nodes[at]->op) || !(graph->nodes[at]->flags & GGML_TENSOR_FLAG_COMPUTE)));
    return at;
}

bool is_rope_of(const ggml_tensor * t, const ggml_tensor * x) {
    return t->op == GGML_OP_ROPE && t->src[0] == x && is_plain(t);
}

bool is_swiglu(const ggml_tensor * t) {
    return t->op == GGML_OP_GLU && ggml_get_glu_op(t) == GGML_GLU_OP_SWIGLU && t->src[1] && is_plain(t) &&
           is_plain(t->src[0]) && is_plain(t->src[1]);
}

bool overlap(const ggml_tensor * a, const ggml_tensor * b) {
    return (const char *) a->data < (const char *) b->data + ggml_nbytes(b) &&
           (const char *) b->data < (const char *) a->data + ggml_nbytes(a);
}

// Whether a thread that writes its rows of `out` may overwrite what another thread still has to read of `in`. It cannot
// if the op works in place, row by row.
bool conflict(const ggml_tensor * in, const ggml_tensor * out) {
    return in && out && overlap(in, out) &&
           !(in->data == out->data && ggml_are_same_shape(in, out) &&
               std::equal(in->nb, in->nb + GGML_MAX_DIMS, out->nb));
}

bool has_conflict(const norm_ops & ops) {
    for (const ggml_tensor * out : ops.outputs()) {
        for (const ggml_tensor * in : ops.inputs()) {
            if (conflict(in, out)) {
                return true;
            }
        }
        if (conflict(ops.mul, out)) {
            return true;
        }
    }
    return false;
}

// [ADD] RMS_NORM MUL, by one weight.
std::optional<match<norm_ops>> find_norm(const ggml_cgraph * graph, int at) {
    ggml_tensor * add   = graph->nodes[at]->op == GGML_OP_ADD ? graph->nodes[at] : nullptr;
    const int     first = add ? next_node(graph, at) : at;
    if (!best_kernels() || first >= graph->n_nodes || graph->nodes[first]->op != GGML_OP_RMS_NORM ||
        !ggml_can_fuse(graph, first, { GGML_OP_RMS_NORM, GGML_OP_MUL })) {
        return {};
    }
    norm_ops ops;
    ops.add  = add;
    ops.norm = graph->nodes[first];
    ops.mul  = graph->nodes[first + 1];
    if (!is_plain(ops.norm->src[0]) || !is_plain(ops.mul) || !is_plain(ops.weight()) || ggml_nrows(ops.weight()) != 1 ||
        ops.weight()->ne[0] != ops.norm->ne[0]) {
        return {};
    }
    if (add && (ops.norm->src[0] != add || !is_plain(add) || !is_plain(add->src[0]) || !is_plain(add->src[1]) ||
                   !ggml_are_same_shape(add->src[0], add->src[1]) || has_conflict(ops))) {
        return {};
    }
    return match<norm_ops>{ ops, first + 1 };
}

// The same with a ROPE of its result, if that follows.
match<norm_ops> with_rope(const ggml_cgraph * graph, const match<norm_ops> & norm) {
    match<norm_ops> rotated = { norm.ops, next_node(graph, norm.last) };
    if (rotated.last >= graph->n_nodes || !is_rope_of(graph->nodes[rotated.last], norm.ops.mul)) {
        return norm;
    }
    rotated.ops.rope = graph->nodes[rotated.last];
    return has_conflict(rotated.ops) ? norm : rotated;
}

// Products of `x`, if it is not null; there may be none.
match<product_list> find_products(const ggml_cgraph * graph, int at, const ggml_tensor * x) {
    product_list found;
    int          last = at - 1;
    for (int i = at; i < graph->n_nodes && found.n < MAX_PRODUCTS; i = next_node(graph, i)) {
        ggml_tensor * op = graph->nodes[i];
        if (!is_packed_mul_mat(op) || (x && op->src[1] != x) ||
            (found.n > 0 && !share_quantized_rows(found.ops[0], op))) {
            break;
        }
        found.ops[found.n++] = op;
        last                 = i;
    }
    return { found, last };
}

// After a gate and an up product, if nothing else reads them.
std::optional<match<swiglu_of_products>> find_swiglu_of(
    const ggml_cgraph * graph, const match<product_list> & products) {
    const product_list & gate_up = products.ops;
    const int            at      = next_node(graph, products.last);
    if (gate_up.n != 2 || at >= graph->n_nodes || !is_swiglu(graph->nodes[at])) {
        return {};
    }
    ggml_tensor * swiglu     = graph->nodes[at];
    const auto    is_product = [&](const ggml_tensor * t) { return t == gate_up.ops[0] || t == gate_up.ops[1]; };
    if (swiglu->src[0] == swiglu->src[1] || !is_product(swiglu->src[0]) || !is_product(swiglu->src[1]) ||
        !packed_swiglu_fits(swiglu)) {
        return {};
    }
    for (int i = products.last, left = 2; left > 0; --i) {
        if (is_product(graph->nodes[i])) {
            if (!ggml_node_has_n_uses(graph, i, 1)) {
                return {};
            }
            --left;
        }
    }
    const match<product_list> of_swiglu = find_products(graph, next_node(graph, at), swiglu);
    const int                 n         = of_swiglu.ops.n;
    if (n == 0) {
        return {};
    }
    return match<swiglu_of_products>{ { swiglu, of_swiglu.ops, !ggml_node_has_n_uses(graph, at, n) }, of_swiglu.last };
}

}   // namespace

std::optional<match<set_rows_ops>> find_set_rows(const ggml_cgraph * graph, int at) {
    const int second = graph->nodes[at]->op == GGML_OP_SET_ROWS ? next_node(graph, at) : graph->n_nodes;
    if (second >= graph->n_nodes || graph->nodes[second]->op != GGML_OP_SET_ROWS) {
        return {};
    }
    ggml_tensor *a = graph->nodes[at], *b = graph->nodes[second];
    if (overlap(a, b) || overlap(a, b->src[0]) || overlap(b, a->src[0])) {
        return {};
    }
    return match<set_rows_ops>{ { a, b }, second };
}

// Whether we compute an RMS norm depends only on the graph, because its bits differ from ggml's. Which ops are fused
// with it does not change any bits, so that may also depend on where their tensors are in memory.
std::optional<match<product_chain>> find_chain(const ggml_cgraph * graph, int at) {
    ggml_tensor *        node = graph->nodes[at];
    const ggml_tensor *  x    = nullptr;   // the input, if it is computed
    match<product_chain> chain{ {}, at };
    if (std::optional<match<norm_ops>> norm = find_norm(graph, at)) {
        const match<norm_ops> ops = norm->ops.add ? *norm : with_rope(graph, *norm);
        chain.ops.input           = ops.ops;
        chain.last                = ops.last;
        if (ops.ops.rope) {
            return chain;
        }
        x = ops.ops.mul;
    } else if (is_swiglu(node)) {
        if (conflict(node->src[0], node) || conflict(node->src[1], node)) {
            return {};
        }
        chain.ops.input = swiglu_op{ node };
        x               = node;
    } else if (!is_packed_mul_mat(node)) {
        return {};
    }
    const match<product_list> products = find_products(graph, x ? next_node(graph, chain.last) : at, x);
    chain.ops.products                 = products.ops;
    if (products.ops.n > 0) {
        chain.last = products.last;
    }
    if (!std::holds_alternative<swiglu_op>(chain.ops.input)) {
        if (const auto swiglu = find_swiglu_of(graph, products)) {
            chain.ops.swiglu = swiglu->ops;
            chain.last       = swiglu->last;
        }
    }
    if (chain.last == at) {
        return {};   // ggml computes a single op just as well
    }
    return chain;
}

void gather_products(ggml_cgraph * graph) {
    for (int i = 0; i < graph->n_nodes; ++i) {
        if (!is_packed_mul_mat(graph->nodes[i])) {
            continue;
        }
        const ggml_tensor *x = graph->nodes[i]->src[1], *base = x->view_src ? x->view_src : x;
        int                last = i;   // index of the last adjacent product
        for (int j = i + 1; j < std::min(graph->n_nodes, i + MAX_DISTANCE); ++j) {
            ggml_tensor * node = graph->nodes[j];
            if (!ggml_op_is_empty(node->op) && node->view_src == base) {
                break;   // it writes into the input
            }
            if (is_packed_mul_mat(node) && share_quantized_rows(graph->nodes[i], node)) {
                std::rotate(graph->nodes + last + 1, graph->nodes + j, graph->nodes + j + 1);
                ++last;
            }
        }
        i = last;
    }
}

}   // namespace dflash
