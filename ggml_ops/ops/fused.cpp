#include "fused.h"

#include "experts.h"
#include "ggml-cpu-impl.h"
#include "ggml-impl.h"
#include "panel_product.h"
#include "row_steps.h"
#include "vec.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace dflash {

namespace {

constexpr int     MOST    = 8;     // products of a step
constexpr int     NEAR    = 24;    // nodes that products of one input lie apart at most
constexpr int64_t SEGMENT = 256;   // positions of a SWIGLU that are one piece of work: whole blocks of every type

bool is_on() {
    static const bool on = [] { const char * s = std::getenv("DFLASH_FUSED"); return !(s && std::strcmp(s, "0") == 0); }();   // for measurements
    return on;
}

bool is_plain(const ggml_tensor * t) { return t->type == GGML_TYPE_F32 && t->nb[0] == sizeof(float); }

struct step {
    ggml_tensor * add = nullptr, * norm = nullptr, * mul = nullptr, * glu = nullptr, * products[MOST];
    int n_products = 0, last = 0;   // last: index of its last node

    const ggml_tensor * weight() const { return mul->src[mul->src[0] == norm ? 1 : 0]; }
    ggml_tensor * made() const { return mul ? mul : glu; }
};

// The next node that computes something.
int next(const ggml_cgraph * graph, int at) {
    do { ++at; } while (at < graph->n_nodes && (ggml_op_is_empty(graph->nodes[at]->op) || !(graph->nodes[at]->flags & GGML_TENSOR_FLAG_COMPUTE)));
    return at;
}

bool is_norm(const ggml_cgraph * graph, int at) {
    if (at >= graph->n_nodes || graph->nodes[at]->op != GGML_OP_RMS_NORM || !ggml_can_fuse(graph, at, { GGML_OP_RMS_NORM, GGML_OP_MUL })) {
        return false;
    }
    step s;
    s.norm = graph->nodes[at];
    s.mul  = graph->nodes[at + 1];
    return is_plain(s.norm->src[0]) && is_plain(s.mul) && is_plain(s.weight()) && ggml_nrows(s.weight()) == 1 && s.weight()->ne[0] == s.norm->ne[0];
}

bool is_swiglu(const ggml_tensor * t) {
    return t->op == GGML_OP_GLU && ggml_get_glu_op(t) == GGML_GLU_OP_SWIGLU && t->src[1] && is_plain(t) && is_plain(t->src[0]) && is_plain(t->src[1]);
}

// Whether a thread that writes some of `out` could write over what another one has yet to read of `in`. In place, row on row, it can't.
bool clash(const ggml_tensor * in, const ggml_tensor * out) {
    const char * a = (const char *) in->data, * b = (const char *) out->data;
    return a < b + ggml_nbytes(out) && b < a + ggml_nbytes(in) && !(a == b && ggml_are_same_shape(in, out) && std::equal(in->nb, in->nb + GGML_MAX_DIMS, out->nb));
}

// The step that begins at a node. Whether it is one at all follows from the graph alone; whether an addition joins, which changes no bits, from memory too.
bool find(const ggml_cgraph * graph, int at, step & s) {
    ggml_tensor * node = graph->nodes[at];
    int i = at;
    if (node->op == GGML_OP_ADD) {
        i = next(graph, at);
        if (!row_steps_here() || !is_norm(graph, i) || graph->nodes[i]->src[0] != node || !is_plain(node) || !is_plain(node->src[0]) || !is_plain(node->src[1]) ||
            !ggml_are_same_shape(node->src[0], node->src[1])) {
            return false;
        }
        s.add = node;
    }
    if (row_steps_here() && is_norm(graph, i)) {
        s.norm = graph->nodes[i];
        s.mul  = graph->nodes[++i];
    } else if (is_swiglu(node)) {
        s.glu = node;
    } else if (!product_is_ours(node)) {
        return false;
    }
    for (const ggml_tensor * in : { s.add ? s.add->src[0] : nullptr, s.add ? s.add->src[1] : nullptr, s.norm ? s.norm->src[0] : nullptr, s.glu ? s.glu->src[0] : nullptr, s.glu ? s.glu->src[1] : nullptr }) {
        for (const ggml_tensor * out : { s.add, s.made() }) {
            if (in && out && clash(in, out)) {
                return false;
            }
        }
    }
    s.last = i;
    for (int j = s.made() ? next(graph, i) : i; j < graph->n_nodes && s.n_products < MOST; j = next(graph, j)) {
        ggml_tensor * op = graph->nodes[j];
        if (!product_is_ours(op) || (s.made() && op->src[1] != s.made()) || (s.n_products > 0 && !products_share_rows(s.products[0], op))) {
            break;
        }
        s.products[s.n_products++] = op;
        s.last = j;
    }
    return s.mul || s.n_products + (s.glu != nullptr) > 1;   // one op alone is as well off with ggml
}

void compute_rows(const ggml_compute_params * params, const step & s) {
    const ggml_tensor * made = s.made();
    const ggml_tensor * product = s.n_products > 0 ? s.products[0] : nullptr;
    const int64_t n = ggml_nrows(made), k = made->ne[0];
    if (s.glu) {
        const int64_t segment = k % SEGMENT == 0 ? SEGMENT : k, of_row = k / segment, all = n * of_row;
        for (int64_t u = all * params->ith / params->nth; u < all * (params->ith + 1) / params->nth; ++u) {
            const int64_t i = u / of_row, from = u % of_row * segment;
            float * out = (float *) row_of(made, i);
            ggml_vec_swiglu_f32((int) segment, out + from, (const float *) row_of(made->src[0], i) + from, (const float *) row_of(made->src[1], i) + from);
            if (product) {
                product_quantize(params, product, i, out, from, from + segment);
            }
        }
        return;
    }
    float eps;
    std::memcpy(&eps, s.norm->op_params, sizeof(eps));
    for (int64_t i = n * params->ith / params->nth; i < n * (params->ith + 1) / params->nth; ++i) {
        if (s.add) {
            row_steps_here()->add((const float *) row_of(s.add->src[0], i), (const float *) row_of(s.add->src[1], i), (float *) row_of(s.add, i), k);
        }
        float * out = (float *) row_of(made, i);
        row_steps_here()->norm((const float *) row_of(s.norm->src[0], i), (const float *) s.weight()->data, out, k, eps);
        if (product) {
            product_quantize(params, product, i, out, 0, k);
        }
    }
}

}  // namespace

}  // namespace dflash

using namespace dflash;

int dflash_fused_compute(const ggml_compute_params * params, const ggml_cgraph * graph, int at) {
    step s;
    if (!is_on() || !find(graph, at, s)) {
        return 0;
    }
    if (!s.made()) {
        product_compute(params, s.products, s.n_products);
    } else {
        compute_rows(params, s);
        if (s.n_products > 0) {
            product_multiply(params, s.products, s.n_products);
        }
    }
    return s.last - at;
}

void dflash_fused_order(ggml_cgraph * graph) {
    if (!is_on()) {
        return;
    }
    for (int i = 0; i < graph->n_nodes; ++i) {
        if (!product_is_ours(graph->nodes[i])) {
            continue;
        }
        const ggml_tensor * x = graph->nodes[i]->src[1], * base = x->view_src ? x->view_src : x;
        int together = i;   // the last of them
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
