#include "cpu/op_fusion.h"

#include "cpu/gemm/packed_gemm.h"
#include "cpu/isa/kernels.h"
#include "cpu/rope/rope.h"
#include "cpu/switches.h"
#include "cpu/tensor_rows.h"
#include "ggml-cpu-impl.h"
#include "ggml-impl.h"
#include "ops.h"
#include "vec.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <variant>

namespace dflash {

namespace {

constexpr int     MAX_PRODUCTS = 8;     // fused at once
constexpr int     MAX_DISTANCE = 24;    // most nodes between products of one input
constexpr int64_t SEGMENT      = 256;   // values of a SWIGLU per task: whole blocks of every type

// ---- what is fused ----

using set_rows_ops = std::array<ggml_tensor *, 2>;

// [ADD] RMS_NORM MUL [ROPE]; null if not part of it.
struct norm_ops {
    ggml_tensor *add = nullptr, *norm = nullptr, *mul = nullptr, *rope = nullptr;

    const ggml_tensor *                weight() const { return mul->src[mul->src[0] == norm ? 1 : 0]; }
    std::array<const ggml_tensor *, 3> inputs() const {
        return { add ? add->src[0] : nullptr, add ? add->src[1] : nullptr, norm->src[0] };
    }
    std::array<const ggml_tensor *, 3> outputs() const { return { add, mul, rope }; }
};

struct swiglu_op {
    ggml_tensor * op;
};

// Products that share their quantized rows.
struct product_list {
    ggml_tensor * ops[MAX_PRODUCTS] = {};
    int           n                 = 0;
};

// The SWIGLU of a gate and an up product, and the products of its result.
struct swiglu_of_products {
    ggml_tensor * op;
    product_list  products;
    bool          write;   // false if only the products read it
};

struct product_chain {
    std::variant<std::monostate, norm_ops, swiglu_op> input;      // what computes it; none: it is in memory
    product_list                                      products;   // of the input
    std::optional<swiglu_of_products>                 swiglu;
};

// ---- finding it ----

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

// Each of these finds ops from a node on. `last` becomes the index of the last one.

// [ADD] RMS_NORM MUL, by one weight.
std::optional<norm_ops> find_norm(const ggml_cgraph * graph, int at, int & last) {
    ggml_tensor * add   = graph->nodes[at]->op == GGML_OP_ADD ? graph->nodes[at] : nullptr;
    const int     first = add ? next_node(graph, at) : at;
    if (!best_kernels() || first >= graph->n_nodes || graph->nodes[first]->op != GGML_OP_RMS_NORM ||
        !ggml_can_fuse(graph, first, { GGML_OP_RMS_NORM, GGML_OP_MUL })) {
        return {};
    }
    const norm_ops ops = { add, graph->nodes[first], graph->nodes[first + 1], nullptr };
    if (!is_plain(ops.norm->src[0]) || !is_plain(ops.mul) || !is_plain(ops.weight()) || ggml_nrows(ops.weight()) != 1 ||
        ops.weight()->ne[0] != ops.norm->ne[0]) {
        return {};
    }
    if (add && (ops.norm->src[0] != add || !is_plain(add) || !is_plain(add->src[0]) || !is_plain(add->src[1]) ||
                   !ggml_are_same_shape(add->src[0], add->src[1]) || has_conflict(ops))) {
        return {};
    }
    last = first + 1;
    return ops;
}

// A ROPE of the result of the norm whose last node is `last`.
bool find_rope(const ggml_cgraph * graph, norm_ops & ops, int & last) {
    const int at = next_node(graph, last);
    if (at >= graph->n_nodes || !is_rope_of(graph->nodes[at], ops.mul)) {
        return false;
    }
    norm_ops rotated = ops;
    rotated.rope     = graph->nodes[at];
    if (has_conflict(rotated)) {
        return false;
    }
    ops  = rotated;
    last = at;
    return true;
}

std::optional<set_rows_ops> find_set_rows(const ggml_cgraph * graph, int at, int & last) {
    const int second = graph->nodes[at]->op == GGML_OP_SET_ROWS ? next_node(graph, at) : graph->n_nodes;
    if (second >= graph->n_nodes || graph->nodes[second]->op != GGML_OP_SET_ROWS) {
        return {};
    }
    ggml_tensor *a = graph->nodes[at], *b = graph->nodes[second];
    if (overlap(a, b) || overlap(a, b->src[0]) || overlap(b, a->src[0])) {
        return {};
    }
    last = second;
    return set_rows_ops{ a, b };
}

// Products of `x`, if it is not null. None: `last` stays.
product_list find_products(const ggml_cgraph * graph, int at, const ggml_tensor * x, int & last) {
    product_list found;
    for (int i = at; i < graph->n_nodes && found.n < MAX_PRODUCTS; i = next_node(graph, i)) {
        ggml_tensor * op = graph->nodes[i];
        if (!is_packed_mul_mat(op) || (x && op->src[1] != x) ||
            (found.n > 0 && !share_quantized_rows(found.ops[0], op))) {
            break;
        }
        found.ops[found.n++] = op;
        last                 = i;
    }
    return found;
}

// After two products, the second at `last`: if nothing else reads gate and up.
std::optional<swiglu_of_products> find_swiglu_of(const ggml_cgraph * graph, const product_list & gate_up, int & last) {
    const int at = next_node(graph, last);
    if (gate_up.n != 2 || at >= graph->n_nodes || !is_swiglu(graph->nodes[at])) {
        return {};
    }
    ggml_tensor * swiglu     = graph->nodes[at];
    const auto    is_product = [&](const ggml_tensor * t) { return t == gate_up.ops[0] || t == gate_up.ops[1]; };
    if (swiglu->src[0] == swiglu->src[1] || !is_product(swiglu->src[0]) || !is_product(swiglu->src[1]) ||
        !packed_swiglu_fits(swiglu)) {
        return {};
    }
    for (int i = last, left = 2; left > 0; --i) {
        if (is_product(graph->nodes[i])) {
            if (!ggml_node_has_n_uses(graph, i, 1)) {
                return {};
            }
            --left;
        }
    }
    const product_list found = find_products(graph, next_node(graph, at), swiglu, last);
    if (found.n == 0) {
        return {};
    }
    return swiglu_of_products{ swiglu, found, !ggml_node_has_n_uses(graph, at, found.n) };
}

// Whether we compute an RMS norm depends only on the graph, because its bits differ from ggml's. Which ops are fused
// with it does not change any bits, so that may also depend on where their tensors are in memory.
std::optional<product_chain> find_chain(const ggml_cgraph * graph, int at, int & last) {
    ggml_tensor *       node = graph->nodes[at];
    const ggml_tensor * x    = nullptr;   // the input, if it is computed
    product_chain       chain;
    last = at;
    if (std::optional<norm_ops> norm = find_norm(graph, at, last)) {
        const bool is_rotated = !norm->add && find_rope(graph, *norm, last);
        chain.input           = *norm;
        x                     = norm->mul;
        if (is_rotated) {
            return chain;
        }
    } else if (is_swiglu(node)) {
        if (conflict(node->src[0], node) || conflict(node->src[1], node)) {
            return {};
        }
        chain.input = swiglu_op{ node };
        x           = node;
    } else if (!is_packed_mul_mat(node)) {
        return {};
    }
    chain.products = find_products(graph, x ? next_node(graph, last) : at, x, last);
    if (!std::holds_alternative<swiglu_op>(chain.input)) {
        chain.swiglu = find_swiglu_of(graph, chain.products, last);
    }
    if (last == at) {
        return {};   // ggml computes a single op just as well
    }
    return chain;
}

// ---- computing it ----

// product: the first one of the input, whose rows are quantized for it; null: there is none.

void compute_input(const ggml_compute_params * params, const norm_ops & ops, const ggml_tensor * product) {
    const elementwise_kernels & kernels = best_kernels()->elementwise;
    const int64_t               k       = ops.mul->ne[0];
    float                       eps;
    std::memcpy(&eps, ops.norm->op_params, sizeof(eps));
    const auto [begin, end] = rows_of_thread(params, ggml_nrows(ops.mul));
    std::optional<rotation> rotation;
    if (ops.rope && rope_fits(ops.rope)) {
        rotation.emplace(ops.rope);
    }
    for (int64_t i = begin; i < end; ++i) {
        if (ops.add) {
            kernels.add((const float *) row_of(ops.add->src[0], i), (const float *) row_of(ops.add->src[1], i),
                (float *) row_of(ops.add, i), k);
        }
        float * out = (float *) row_of(ops.mul, i);
        kernels.rms_norm((const float *) row_of(ops.norm->src[0], i), (const float *) ops.weight()->data, out, k, eps);
        if (product) {
            packed_gemm_quantize(params, product, i, out, 0, k);
        }
        if (rotation) {
            rotation->compute_row(i);
        }
    }
    if (ops.rope && !rotation) {
        ggml_compute_forward_rope(params, ops.rope);
    }
}

void compute_input(const ggml_compute_params * params, const swiglu_op & ops, const ggml_tensor * product) {
    const ggml_tensor * swiglu = ops.op;
    const int64_t       k = swiglu->ne[0], segment = k % SEGMENT == 0 ? SEGMENT : k, n_segments = k / segment;
    const auto [begin, end] = rows_of_thread(params, ggml_nrows(swiglu) * n_segments);
    for (int64_t s = begin; s < end; ++s) {
        const int64_t i = s / n_segments, first = s % n_segments * segment;
        float *       out = (float *) row_of(swiglu, i);
        ggml_vec_swiglu_f32((int) segment, out + first, (const float *) row_of(swiglu->src[0], i) + first,
            (const float *) row_of(swiglu->src[1], i) + first);
        packed_gemm_quantize(params, product, i, out + first, first, first + segment);
    }
}

void compute_input(const ggml_compute_params * params, std::monostate, const ggml_tensor * product) {
    packed_gemm_quantize(params, product);
}

void compute_chain(const ggml_compute_params * params, const product_chain & chain) {
    const ggml_tensor * first = chain.products.n > 0 ? chain.products.ops[0] : nullptr;
    std::visit([&](const auto & input) { compute_input(params, input, first); }, chain.input);
    if (chain.swiglu) {
        const product_list & of_swiglu = chain.swiglu->products;
        packed_gemm_multiply_swiglu(params, chain.swiglu->op, chain.swiglu->write, of_swiglu.ops, of_swiglu.n);
    } else if (first) {
        packed_gemm_multiply(params, chain.products.ops, chain.products.n);
    }
}

}   // namespace

}   // namespace dflash

using namespace dflash;

int dflash_fused_compute(const ggml_compute_params * params, const ggml_cgraph * graph, int at) {
    int last = at;
    if (!switches::get().fused_ops) {
        return 0;
    }
    if (const std::optional<set_rows_ops> pair = find_set_rows(graph, at, last)) {
        ggml_compute_forward_set_rows(params, (*pair)[0]);
        ggml_compute_forward_set_rows(params, (*pair)[1]);
    } else if (const std::optional<product_chain> chain = find_chain(graph, at, last)) {
        compute_chain(params, *chain);
    } else {
        return 0;
    }
    return last - at;
}

void dflash_fused_order(ggml_cgraph * graph) {
    if (!switches::get().fused_ops) {
        return;
    }
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
