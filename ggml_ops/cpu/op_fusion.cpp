#include "cpu/op_fusion.h"

#include "cpu/gemm/rows.h"
#include "ggml-cpu-impl.h"
#include "ggml-impl.h"
#include "ops.h"
#include "cpu/gemm/packed_gemm.h"
#include "cpu/rows/rope.h"
#include "cpu/rows/elementwise.h"
#include "cpu/switches.h"
#include "vec.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

namespace dflash {

namespace {

constexpr int     MOST    = 8;     // products of a step
constexpr int     NEAR    = 24;    // nodes that products of one input lie apart at most
constexpr int64_t SEGMENT = 256;   // positions of a SWIGLU that are one piece of work: whole blocks of every type

bool fused_on() {
    static const bool on = is_on("DFLASH_FUSED");
    return on;
}

struct norm_chain {   // null: not part of it
    ggml_tensor *add = nullptr, *norm = nullptr, *mul = nullptr, *rope = nullptr;

    const ggml_tensor *                weight() const { return mul->src[mul->src[0] == norm ? 1 : 0]; }
    std::array<const ggml_tensor *, 3> inputs() const {
        return { add ? add->src[0] : nullptr, add ? add->src[1] : nullptr, norm ? norm->src[0] : nullptr };
    }
    std::array<const ggml_tensor *, 3> outputs() const { return { add, mul, rope }; }
};

struct step {
    norm_chain   chain;
    ggml_tensor *glu = nullptr, *products[MOST], *copies[2] = {};
    ggml_tensor *glu_of     = nullptr, *takers[MOST];      // SWIGLU of the two products, and the products that take it
    int          n_products = 0, n_takers = 0, last = 0;   // last: index of its last node
    bool         seen = true;                              // that SWIGLU, by others

    const ggml_tensor * made() const { return chain.mul ? chain.mul : glu; }   // what the products take
};

// The next node that computes something.
int next(const ggml_cgraph * graph, int at) {
    do {
        ++at;
    } while (at < graph->n_nodes &&
             (ggml_op_is_empty(graph->nodes[at]->op) || !(graph->nodes[at]->flags & GGML_TENSOR_FLAG_COMPUTE)));
    return at;
}

// RMS_NORM and MUL by one weight at a node.
bool find_norm(const ggml_cgraph * graph, int at, norm_chain & c) {
    if (!row_steps_here() || at >= graph->n_nodes || graph->nodes[at]->op != GGML_OP_RMS_NORM ||
        !ggml_can_fuse(graph, at, { GGML_OP_RMS_NORM, GGML_OP_MUL })) {
        return false;
    }
    norm_chain found;
    found.norm = graph->nodes[at];
    found.mul  = graph->nodes[at + 1];
    if (!is_plain(found.norm->src[0]) || !is_plain(found.mul) || !is_plain(found.weight()) ||
        ggml_nrows(found.weight()) != 1 || found.weight()->ne[0] != found.norm->ne[0]) {
        return false;
    }
    c.norm = found.norm;
    c.mul  = found.mul;
    return true;
}

bool is_rope(const ggml_tensor * t, const ggml_tensor * of) {
    return t->op == GGML_OP_ROPE && t->src[0] == of && is_plain(t);
}

bool is_swiglu(const ggml_tensor * t) {
    return t->op == GGML_OP_GLU && ggml_get_glu_op(t) == GGML_GLU_OP_SWIGLU && t->src[1] && is_plain(t) &&
           is_plain(t->src[0]) && is_plain(t->src[1]);
}

bool overlap(const ggml_tensor * a, const ggml_tensor * b) {
    return (const char *) a->data < (const char *) b->data + ggml_nbytes(b) &&
           (const char *) b->data < (const char *) a->data + ggml_nbytes(a);
}

// Whether a thread that writes its rows of `out` could write over what another one has yet to read of `in`. In place,
// row on row, it can't.
bool clash(const ggml_tensor * in, const ggml_tensor * out) {
    return in && out && overlap(in, out) &&
           !(in->data == out->data && ggml_are_same_shape(in, out) &&
               std::equal(in->nb, in->nb + GGML_MAX_DIMS, out->nb));
}

bool clash(const norm_chain & c) {
    for (const ggml_tensor * out : c.outputs()) {
        for (const ggml_tensor * in : c.inputs()) {
            if (clash(in, out)) {
                return true;
            }
        }
        if (clash(c.mul, out)) {
            return true;
        }
    }
    return false;
}

// Products from a node on that share their rows; of `x`, if that is given. last: the last one's node, if there is one.
void find_products(
    const ggml_cgraph * graph, int at, const ggml_tensor * x, ggml_tensor ** products, int & count, int & last) {
    for (int j = at; j < graph->n_nodes && count < MOST; j = next(graph, j)) {
        ggml_tensor * op = graph->nodes[j];
        if (!product_is_ours(op) || (x && op->src[1] != x) || (count > 0 && !products_share_rows(products[0], op))) {
            break;
        }
        products[count++] = op;
        last              = j;
    }
}

// Gate and up, if nobody but a SWIGLU sees them, with that and the products that take it.
void find_glu(const ggml_cgraph * graph, step & s) {
    const int at = next(graph, s.last);
    if (s.glu || s.n_products != 2 || at >= graph->n_nodes || !is_swiglu(graph->nodes[at])) {
        return;
    }
    ggml_tensor * glu    = graph->nodes[at];
    const auto    is_one = [&](const ggml_tensor * t) { return t == s.products[0] || t == s.products[1]; };
    if (glu->src[0] == glu->src[1] || !is_one(glu->src[0]) || !is_one(glu->src[1]) || !product_takes_glu(glu)) {
        return;
    }
    for (int i = s.last, left = 2; left > 0; --i) {
        if (is_one(graph->nodes[i])) {
            if (!ggml_node_has_n_uses(graph, i, 1)) {
                return;
            }
            --left;
        }
    }
    find_products(graph, next(graph, at), glu, s.takers, s.n_takers, s.last);
    if (s.n_takers > 0) {
        s.glu_of = glu;
        s.seen   = !ggml_node_has_n_uses(graph, at, s.n_takers);
    }
}

// The step that begins at a node. That a norm is ours follows from the graph alone; whether others join, which changes
// no bits, from memory too.
bool find(const ggml_cgraph * graph, int at, step & s) {
    ggml_tensor * node = graph->nodes[at];
    norm_chain &  c    = s.chain;
    int           i    = at;
    if (node->op == GGML_OP_SET_ROWS) {
        i = next(graph, at);
        if (i >= graph->n_nodes || graph->nodes[i]->op != GGML_OP_SET_ROWS) {
            return false;
        }
        ggml_tensor * other = graph->nodes[i];
        s.copies[0]         = node;
        s.copies[1]         = other;
        s.last              = i;
        return !overlap(node, other) && !overlap(node, other->src[0]) && !overlap(other, node->src[0]);
    }
    if (node->op == GGML_OP_ADD) {
        i = next(graph, at);
        if (!find_norm(graph, i, c) || c.norm->src[0] != node || !is_plain(node) || !is_plain(node->src[0]) ||
            !is_plain(node->src[1]) || !ggml_are_same_shape(node->src[0], node->src[1])) {
            return false;
        }
        c.add = node;
        if (clash(c)) {
            return false;
        }
        ++i;
    } else if (find_norm(graph, i, c)) {
        ++i;
    } else if (is_swiglu(node)) {
        if (clash(node->src[0], node) || clash(node->src[1], node)) {
            return false;
        }
        s.glu = node;
    } else if (!product_is_ours(node)) {
        return false;
    }
    s.last = i;
    if (c.mul && !c.add) {
        const int j = next(graph, i);
        if (j < graph->n_nodes && is_rope(graph->nodes[j], c.mul)) {
            c.rope = graph->nodes[j];
            if (!clash(c)) {
                s.last = j;
                return true;
            }
            c.rope = nullptr;
        }
    }
    find_products(graph, s.made() ? next(graph, i) : i, s.made(), s.products, s.n_products, s.last);
    find_glu(graph, s);
    return c.mul || s.n_products + (s.glu != nullptr) > 1;   // one op alone is as well off with ggml
}

void compute_norm(const ggml_compute_params * params, const norm_chain & c, const ggml_tensor * product) {
    const int64_t k = c.mul->ne[0];
    float         eps;
    std::memcpy(&eps, c.norm->op_params, sizeof(eps));
    const auto [begin, end] = my_rows(params, ggml_nrows(c.mul));
    std::optional<rotation> turns;
    if (c.rope && rotation_fits(c.rope)) {
        turns.emplace(c.rope);
    }
    for (int64_t i = begin; i < end; ++i) {
        if (c.add) {
            row_steps_here()->add((const float *) row_of(c.add->src[0], i), (const float *) row_of(c.add->src[1], i),
                (float *) row_of(c.add, i), k);
        }
        float * out = (float *) row_of(c.mul, i);
        row_steps_here()->norm(
            (const float *) row_of(c.norm->src[0], i), (const float *) c.weight()->data, out, k, eps);
        if (product) {
            product_quantize(params, product, i, out, 0, k);
        }
        if (turns) {
            turns->turn(i);
        }
    }
    if (c.rope && !turns) {
        ggml_compute_forward_rope(params, c.rope);
    }
}

void compute_swiglu(const ggml_compute_params * params, const ggml_tensor * glu, const ggml_tensor * product) {
    const int64_t k = glu->ne[0], segment = k % SEGMENT == 0 ? SEGMENT : k, of_row = k / segment;
    const auto [begin, end] = my_rows(params, ggml_nrows(glu) * of_row);
    for (int64_t u = begin; u < end; ++u) {
        const int64_t i = u / of_row, from = u % of_row * segment;
        float *       out = (float *) row_of(glu, i);
        ggml_vec_swiglu_f32((int) segment, out + from, (const float *) row_of(glu->src[0], i) + from,
            (const float *) row_of(glu->src[1], i) + from);
        product_quantize(params, product, i, out + from, from, from + segment);
    }
}

}   // namespace

}   // namespace dflash

using namespace dflash;

int dflash_fused_compute(const ggml_compute_params * params, const ggml_cgraph * graph, int at) {
    step s;
    if (!fused_on() || !find(graph, at, s)) {
        return 0;
    }
    const ggml_tensor * product = s.n_products > 0 ? s.products[0] : nullptr;
    if (s.copies[0]) {
        for (ggml_tensor * copy : s.copies) {
            ggml_compute_forward_set_rows(params, copy);
        }
    } else if (s.glu) {
        compute_swiglu(params, s.glu, product);
    } else if (s.chain.mul) {
        compute_norm(params, s.chain, product);
    } else {
        product_quantize(params, product);
    }
    if (s.glu_of) {
        product_multiply_glu(params, s.glu_of, s.seen, s.takers, s.n_takers);
    } else if (product) {
        product_multiply(params, s.products, s.n_products);
    }
    return s.last - at;
}

void dflash_fused_order(ggml_cgraph * graph) {
    if (!fused_on()) {
        return;
    }
    for (int i = 0; i < graph->n_nodes; ++i) {
        if (!product_is_ours(graph->nodes[i])) {
            continue;
        }
        const ggml_tensor *x = graph->nodes[i]->src[1], *base = x->view_src ? x->view_src : x;
        int                together = i;   // the last of them
        for (int j = i + 1; j < std::min(graph->n_nodes, i + NEAR); ++j) {
            ggml_tensor * node = graph->nodes[j];
            if (!ggml_op_is_empty(node->op) && node->view_src == base) {
                break;   // writes into the input
            }
            if (product_is_ours(node) && products_share_rows(graph->nodes[i], node)) {
                std::rotate(graph->nodes + together + 1, graph->nodes + j, graph->nodes + j + 1);
                ++together;
            }
        }
        i = together;
    }
}
