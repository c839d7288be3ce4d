#include "cpu/op_fusion.h"

#include "cpu/dispatch.h"
#include "cpu/fused_chain.h"
#include "cpu/gemm/packed_gemm.h"
#include "cpu/isa/kernels.h"
#include "cpu/rope/rope.h"
#include "cpu/switches.h"
#include "cpu/tensor_rows.h"
#include "cpu/threads/tasks.h"
#include "ggml-cpu-impl.h"
#include "ggml-impl.h"
#include "ops.h"
#include "vec.h"

#include <cstring>
#include <optional>
#include <variant>

namespace dflash {

namespace {

constexpr int64_t SEGMENT = 256;   // values of a SWIGLU per task: whole blocks of every type

// compute_input() computes what the products of a chain read, and quantizes its rows for the first of them, `product`
// (null: there is none).

void compute_input(const ggml_compute_params * params, const norm_ops & ops, const ggml_tensor * product) {
    const elementwise_kernels & kernels = best_kernels()->elementwise;
    const int64_t               k       = ops.mul->ne[0];
    float                       eps;
    std::memcpy(&eps, ops.norm->op_params, sizeof(eps));
    const auto [begin, end] = rows_of_thread(params, ggml_nrows(ops.mul));
    std::optional<rotation> rotation;
    if (ops.rope && is_ours(ops.rope)) {
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
    if (!switches::get().fused_ops) {
        return 0;
    }
    if (const std::optional<match<set_rows_ops>> pair = find_set_rows(graph, at)) {
        ggml_compute_forward_set_rows(params, pair->ops[0]);
        ggml_compute_forward_set_rows(params, pair->ops[1]);
        return pair->last - at;
    }
    if (const std::optional<match<product_chain>> chain = find_chain(graph, at)) {
        compute_chain(params, chain->ops);
        return chain->last - at;
    }
    return 0;
}

void dflash_fused_order(ggml_cgraph * graph) {
    if (switches::get().fused_ops) {
        gather_products(graph);
    }
}
