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

namespace dflash {

namespace {

constexpr int     MAX_PRODUCTS = 8;     // fused at once
constexpr int     MAX_DISTANCE = 24;    // most nodes between products of one input
constexpr int64_t SEGMENT      = 256;   // values of a SWIGLU per task: whole blocks of every type

bool fusion_is_on() {
    static const bool on = is_on("DFLASH_FUSED");
    return on;
}

// [ADD] RMS_NORM MUL [ROPE]; null if not part of it.
struct norm_ops {
    ggml_tensor *add = nullptr, *norm = nullptr, *mul = nullptr, *rope = nullptr;

    const ggml_tensor *                weight() const { return mul->src[mul->src[0] == norm ? 1 : 0]; }
    std::array<const ggml_tensor *, 3> inputs() const {
        return { add ? add->src[0] : nullptr, add ? add->src[1] : nullptr, norm ? norm->src[0] : nullptr };
    }
    std::array<const ggml_tensor *, 3> outputs() const { return { add, mul, rope }; }
};

// Nodes that are computed together.
struct fused_ops {
    norm_ops      norm;
    ggml_tensor * swiglu = nullptr;                // before the products
    ggml_tensor * products[MAX_PRODUCTS];          // of the result of norm or swiglu, or of another common input
    ggml_tensor * swiglu_of_products = nullptr;    // of the gate and up products
    ggml_tensor * swiglu_products[MAX_PRODUCTS];   // of swiglu_of_products
    bool          write_swiglu = true;             // false if only the products read it
    ggml_tensor * set_rows[2]  = {};
    int           n_products = 0, n_swiglu_products = 0;
    int           last = 0;   // index of the last node

    // The op that computes the input of the products; null: none of these.
    const ggml_tensor * input_op() const { return norm.mul ? norm.mul : swiglu; }
};

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

// Finds RMS_NORM and MUL by one weight at a node.
bool find_norm(const ggml_cgraph * graph, int at, norm_ops & ops) {
    if (!best_kernels() || at >= graph->n_nodes || graph->nodes[at]->op != GGML_OP_RMS_NORM ||
        !ggml_can_fuse(graph, at, { GGML_OP_RMS_NORM, GGML_OP_MUL })) {
        return false;
    }
    norm_ops found;
    found.norm = graph->nodes[at];
    found.mul  = graph->nodes[at + 1];
    if (!is_plain(found.norm->src[0]) || !is_plain(found.mul) || !is_plain(found.weight()) ||
        ggml_nrows(found.weight()) != 1 || found.weight()->ne[0] != found.norm->ne[0]) {
        return false;
    }
    ops.norm = found.norm;
    ops.mul  = found.mul;
    return true;
}

// Finds ADD, RMS_NORM and MUL, with the ADD at a node.
bool find_add_norm(const ggml_cgraph * graph, int at, fused_ops & ops) {
    ggml_tensor * add  = graph->nodes[at];
    const int     norm = next_node(graph, at);
    if (!find_norm(graph, norm, ops.norm) || ops.norm.norm->src[0] != add || !is_plain(add) || !is_plain(add->src[0]) ||
        !is_plain(add->src[1]) || !ggml_are_same_shape(add->src[0], add->src[1])) {
        return false;
    }
    ops.norm.add = add;
    ops.last     = norm + 1;
    return !has_conflict(ops.norm);
}

// Finds a ROPE of the norm's result. It ends the sequence.
bool find_rope(const ggml_cgraph * graph, fused_ops & ops) {
    const int at = next_node(graph, ops.last);
    if (at >= graph->n_nodes || !is_rope_of(graph->nodes[at], ops.norm.mul)) {
        return false;
    }
    ops.norm.rope = graph->nodes[at];
    if (has_conflict(ops.norm)) {
        ops.norm.rope = nullptr;
        return false;
    }
    ops.last = at;
    return true;
}

// Finds two SET_ROWS, the first at a node.
bool find_set_rows(const ggml_cgraph * graph, int at, fused_ops & ops) {
    const int second = next_node(graph, at);
    if (second >= graph->n_nodes || graph->nodes[second]->op != GGML_OP_SET_ROWS) {
        return false;
    }
    ggml_tensor *a = graph->nodes[at], *b = graph->nodes[second];
    if (overlap(a, b) || overlap(a, b->src[0]) || overlap(b, a->src[0])) {
        return false;
    }
    ops.set_rows[0] = a;
    ops.set_rows[1] = b;
    ops.last        = second;
    return true;
}

// Finds products from a node on that share their quantized rows, of `x` if not null. last: index of the last one,
// unchanged if there is none.
void find_products(
    const ggml_cgraph * graph, int at, const ggml_tensor * x, ggml_tensor ** products, int & n_products, int & last) {
    for (int i = at; i < graph->n_nodes && n_products < MAX_PRODUCTS; i = next_node(graph, i)) {
        ggml_tensor * op = graph->nodes[i];
        if (!is_packed_mul_mat(op) || (x && op->src[1] != x) ||
            (n_products > 0 && !share_quantized_rows(products[0], op))) {
            break;
        }
        products[n_products++] = op;
        last                   = i;
    }
}

// Finds the SWIGLU of two products, if nothing else reads gate and up, and the products of its result.
void find_swiglu_of_products(const ggml_cgraph * graph, fused_ops & ops) {
    const int at = next_node(graph, ops.last);
    if (ops.swiglu || ops.n_products != 2 || at >= graph->n_nodes || !is_swiglu(graph->nodes[at])) {
        return;
    }
    ggml_tensor * swiglu     = graph->nodes[at];
    const auto    is_product = [&](const ggml_tensor * t) { return t == ops.products[0] || t == ops.products[1]; };
    if (swiglu->src[0] == swiglu->src[1] || !is_product(swiglu->src[0]) || !is_product(swiglu->src[1]) ||
        !packed_swiglu_fits(swiglu)) {
        return;
    }
    for (int i = ops.last, left = 2; left > 0; --i) {
        if (is_product(graph->nodes[i])) {
            if (!ggml_node_has_n_uses(graph, i, 1)) {
                return;
            }
            --left;
        }
    }
    find_products(graph, next_node(graph, at), swiglu, ops.swiglu_products, ops.n_swiglu_products, ops.last);
    if (ops.n_swiglu_products > 0) {
        ops.swiglu_of_products = swiglu;
        ops.write_swiglu       = !ggml_node_has_n_uses(graph, at, ops.n_swiglu_products);
    }
}

// Finds the nodes that are computed together, starting at nodes[at]; false: none. Whether we compute an RMS norm
// depends only on the graph, because its bits differ from ggml's. Which ops are fused with it does not change any bits,
// so that may also depend on where their tensors are in memory.
bool find_fused_ops(const ggml_cgraph * graph, int at, fused_ops & ops) {
    ggml_tensor * node = graph->nodes[at];
    ops.last           = at;
    if (node->op == GGML_OP_SET_ROWS) {
        return find_set_rows(graph, at, ops);
    }
    if (node->op == GGML_OP_ADD) {
        if (!find_add_norm(graph, at, ops)) {
            return false;
        }
    } else if (find_norm(graph, at, ops.norm)) {
        ops.last = at + 1;
        if (find_rope(graph, ops)) {
            return true;
        }
    } else if (is_swiglu(node)) {
        if (conflict(node->src[0], node) || conflict(node->src[1], node)) {
            return false;
        }
        ops.swiglu = node;
    } else if (!is_packed_mul_mat(node)) {
        return false;
    }
    const int first_product = ops.input_op() ? next_node(graph, ops.last) : at;
    find_products(graph, first_product, ops.input_op(), ops.products, ops.n_products, ops.last);
    find_swiglu_of_products(graph, ops);
    return ops.norm.mul || ops.n_products + (ops.swiglu != nullptr) > 1;   // ggml computes a single op just as well
}

void compute_norm(const ggml_compute_params * params, const norm_ops & ops, const ggml_tensor * product) {
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

void compute_swiglu(const ggml_compute_params * params, const ggml_tensor * swiglu, const ggml_tensor * product) {
    const int64_t k = swiglu->ne[0], segment = k % SEGMENT == 0 ? SEGMENT : k, n_segments = k / segment;
    const auto [begin, end] = rows_of_thread(params, ggml_nrows(swiglu) * n_segments);
    for (int64_t s = begin; s < end; ++s) {
        const int64_t i = s / n_segments, first = s % n_segments * segment;
        float *       out = (float *) row_of(swiglu, i);
        ggml_vec_swiglu_f32((int) segment, out + first, (const float *) row_of(swiglu->src[0], i) + first,
            (const float *) row_of(swiglu->src[1], i) + first);
        packed_gemm_quantize(params, product, i, out + first, first, first + segment);
    }
}

}   // namespace

}   // namespace dflash

using namespace dflash;

int dflash_fused_compute(const ggml_compute_params * params, const ggml_cgraph * graph, int at) {
    fused_ops ops;
    if (!fusion_is_on() || !find_fused_ops(graph, at, ops)) {
        return 0;
    }
    const ggml_tensor * product = ops.n_products > 0 ? ops.products[0] : nullptr;
    if (ops.set_rows[0]) {
        for (ggml_tensor * op : ops.set_rows) {
            ggml_compute_forward_set_rows(params, op);
        }
    } else if (ops.swiglu) {
        compute_swiglu(params, ops.swiglu, product);
    } else if (ops.norm.mul) {
        compute_norm(params, ops.norm, product);
    } else {
        packed_gemm_quantize(params, product);
    }
    if (ops.swiglu_of_products) {
        packed_gemm_multiply_swiglu(
            params, ops.swiglu_of_products, ops.write_swiglu, ops.swiglu_products, ops.n_swiglu_products);
    } else if (product) {
        packed_gemm_multiply(params, ops.products, ops.n_products);
    }
    return ops.last - at;
}

void dflash_fused_order(ggml_cgraph * graph) {
    if (!fusion_is_on()) {
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
