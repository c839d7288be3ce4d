#include "gemm/cuda/few_rows.cuh"

#if !defined(GGML_USE_HIP) && !defined(GGML_USE_MUSA)

#include "gemm/cuda/row_tiles.cuh"
#include "ggml-backend.h"

#include <atomic>
#include <cstring>

namespace {

constexpr int NEVER = MOST_ROWS + 1;

std::atomic<int> few_rows_from[GGML_CUDA_MAX_DEVICES][GGML_TYPE_COUNT];   // 0: the default

// Whether there is a kernel for a type, and which.
bool few_rows_type_of(ggml_type type, few_rows_type & few) {
    switch (type) {
        case GGML_TYPE_Q4_K: few = few_rows_type::q4_K; return true;
        case GGML_TYPE_Q5_K: few = few_rows_type::q5_K; return true;
        case GGML_TYPE_Q6_K: few = few_rows_type::q6_K; return true;
        case GGML_TYPE_Q8_0: few = few_rows_type::q8_0; return true;
        case GGML_TYPE_Q4_0: few = few_rows_type::q4_0; return true;
        case GGML_TYPE_Q4_1: few = few_rows_type::q4_1; return true;
        case GGML_TYPE_IQ4_XS: few = few_rows_type::iq4_xs; return true;
        default: return false;
    }
}

int compiled_arch(int device) { return ggml_cuda_highest_compiled_arch(ggml_cuda_info().devices[device].cc); }

bool has_few_rows(int device, ggml_type type) {
    few_rows_type few;
    return device >= 0 && device < ggml_cuda_info().device_count && (unsigned) type < GGML_TYPE_COUNT &&
           GGML_CUDA_CC_IS_NVIDIA(ggml_cuda_info().devices[device].cc) &&
           compiled_arch(device) >= GGML_CUDA_CC_AMPERE && few_rows_type_of(type, few);
}

int from_rows(int device, ggml_type type) {
    const int from = few_rows_from[device][type];
    return from ? from : NEVER;
}

// A matrix of floats whose rows can be read 16 bytes at a time.
bool has_aligned_rows(const ggml_tensor * t) {
    return t->type == GGML_TYPE_F32 && t->nb[0] == sizeof(float) && t->nb[1] % 16 == 0 &&
           (uintptr_t) t->data % 16 == 0 && t->ne[2] == 1 && t->ne[3] == 1;
}
int64_t stride_of(const ggml_tensor * t) { return (int64_t) (t->nb[1] / sizeof(float)); }

// Weights that a graph computes could still be written when the copies of their first chunks start.
bool are_weights(const ggml_tensor * t) {
    return t->ne[0] % CHUNK == 0 && t->ne[2] == 1 && t->ne[3] == 1 && ggml_is_contiguous(t) &&
           (uintptr_t) t->data % 16 == 0 && t->buffer &&
           ggml_backend_buffer_get_usage(t->buffer) == GGML_BACKEND_BUFFER_USAGE_WEIGHTS;
}

int most_shared(int device) { return (int) ggml_cuda_info().devices[device].smpbo; }

few_rows_product product_of(int device, const ggml_tensor * mul_mat, ggml_tensor * out) {
    const ggml_tensor * weights = mul_mat->src[0];
    few_rows_product    p       = {};
    GGML_ASSERT(few_rows_type_of(weights->type, p.type));
    p.weights     = weights->data;
    p.out         = (float *) out->data;
    p.row_bytes   = (int64_t) weights->nb[1];
    p.out_stride  = stride_of(out);
    p.n_columns   = (int) weights->ne[1];
    p.n_rows      = (int) mul_mat->src[1]->ne[1];
    p.n_k         = (int) weights->ne[0];
    p.most_shared = most_shared(device);
    return p;
}

// Another stream may run beside this one, with the same memory.
bool shares_memory(ggml_backend_cuda_context & ctx) {
    return ctx.curr_stream_no == 0 && ctx.stream_context().concurrent_events.empty();
}

rows_args rows_of(const ggml_tensor * rows, char * tiles) {
    return { (const float *) rows->data, stride_of(rows), (int) rows->ne[1], (int) rows->ne[0], tiles };
}

// Lays the rows out unless they are, and multiplies.
void multiply(ggml_backend_cuda_context & ctx, const few_rows_product & p, const ggml_tensor * rows) {
    const bool    cluster  = compiled_arch(ctx.device) >= GGML_CUDA_CC_HOPPER;
    const int     splits   = few_rows_splits(p, ggml_cuda_info().devices[ctx.device].nsm, cluster);
    const k_order order    = order_of(p.type);
    const size_t  n_tiles  = few_rows_tile_bytes(p.n_rows, p.n_k);
    const size_t  n_parts  = cluster ? 0 : few_rows_part_bytes(p, splits);
    const size_t  n_counts = n_parts ? few_rows_blocks(p) * sizeof(int) : 0;

    ggml_cuda_pool_alloc<char> scratch(ctx.pool());
    few_rows_memory            memory  = {};
    bool                       has_all = false;
    if (shares_memory(ctx)) {
        row_tiles & kept = row_tiles::of(ctx);
        memory           = { kept.tiles(order, n_tiles), kept.parts(n_parts), kept.counts(n_counts) };
        has_all          = kept.has(rows, order);
        kept.keep(rows, order);
    } else {
        char * const all = scratch.alloc(n_tiles + n_parts + n_counts);
        memory           = { all, (float4 *) (all + n_tiles), (int *) (all + n_tiles + n_parts) };
        CUDA_CHECK(cudaMemsetAsync(memory.counts, 0, n_counts, ctx.stream()));
    }
    if (!has_all) {
        few_rows_tile(order, rows_of(rows, memory.tiles), ctx.stream());
    }
    if (cluster) {
        few_rows_multiply<true>(p, memory, splits, ctx.stream());
    } else {
        few_rows_multiply<false>(p, memory, splits, ctx.stream());
    }
}

// ---- what is computed as one ----------------------------------------------------------------------------------------

// The other operand of an ADD or MUL; null: t is none of its operands, or they differ in shape.
const ggml_tensor * other_operand(const ggml_tensor * op, const ggml_tensor * t) {
    return op->src[0] == t ? op->src[1] : op->src[1] == t ? op->src[0] : nullptr;
}

// MUL_MAT, ADD of a matrix of the same shape: what is added may be the result's own memory.
int fuse_added(ggml_backend_cuda_context & ctx, const ggml_cgraph * graph, int i) {
    if (!ggml_can_fuse(graph, i, { GGML_OP_MUL_MAT, GGML_OP_ADD })) {
        return 0;
    }
    const ggml_tensor * product = graph->nodes[i];
    ggml_tensor *       sum     = graph->nodes[i + 1];
    const ggml_tensor * added   = other_operand(sum, product);
    if (!dflash_cuda_has_mul_mat(ctx.device, product) || !added || !ggml_are_same_shape(added, sum) ||
        !has_aligned_rows(added) || !has_aligned_rows(sum)) {
        return 0;
    }
    few_rows_product p = product_of(ctx.device, product, sum);
    p.added            = (const float *) added->data;
    p.added_stride     = stride_of(added);
    multiply(ctx, p, product->src[1]);
    return 1;
}

// MUL_MAT, MUL_MAT, GLU of the two: silu(gate) * up.
int fuse_gated(ggml_backend_cuda_context & ctx, const ggml_cgraph * graph, int i) {
    if (!ggml_can_fuse_subgraph(graph, i, { GGML_OP_MUL_MAT, GGML_OP_MUL_MAT, GGML_OP_GLU }, { i + 2 })) {
        return 0;
    }
    const ggml_tensor *one = graph->nodes[i], *two = graph->nodes[i + 1];
    ggml_tensor *      glu  = graph->nodes[i + 2];
    const ggml_tensor *gate = glu->src[0], *up = glu->src[1];
    const bool         are_both = (gate == one && up == two) || (gate == two && up == one);
    if (!are_both || ggml_get_glu_op(glu) != GGML_GLU_OP_SWIGLU || gate->src[1] != up->src[1] ||
        gate->src[0]->type != up->src[0]->type || !ggml_are_same_shape(gate->src[0], up->src[0]) ||
        !dflash_cuda_has_mul_mat(ctx.device, gate) || !dflash_cuda_has_mul_mat(ctx.device, up) ||
        !has_aligned_rows(glu)) {
        return 0;
    }
    few_rows_product p = product_of(ctx.device, gate, glu);
    p.up               = up->src[0]->data;
    multiply(ctx, p, gate->src[1]);
    return 2;
}

// RMS_NORM, MUL by a vector, for the product that reads the result next: the rows are laid out on the way.
int fuse_norm(ggml_backend_cuda_context & ctx, const ggml_cgraph * graph, int i) {
    constexpr int NEAR = 8;   // nodes, some of them views
    if (!ggml_can_fuse(graph, i, { GGML_OP_RMS_NORM, GGML_OP_MUL })) {
        return 0;
    }
    const ggml_tensor * norm = graph->nodes[i], *rows = norm->src[0];
    const ggml_tensor * out    = graph->nodes[i + 1];
    const ggml_tensor * weight = other_operand(out, norm);
    if (!weight || weight->type != GGML_TYPE_F32 || ggml_nelements(weight) != out->ne[0] ||
        !ggml_is_contiguous(weight) || (uintptr_t) weight->data % 16 || !has_aligned_rows(rows) ||
        !has_aligned_rows(out) || out->ne[0] % CHUNK || rows->ne[1] > MOST_ROWS) {
        return 0;
    }
    const ggml_tensor * product = nullptr;
    for (int next = i + 2; next < std::min(i + 2 + NEAR, graph->n_nodes) && !product; ++next) {
        const ggml_tensor * t = graph->nodes[next];
        product               = t->op == GGML_OP_MUL_MAT && t->src[1] == out ? t : nullptr;
    }
    // A row is read twice before it is written, so it may be written where it was read, and nowhere else near.
    if (!product || !dflash_cuda_has_mul_mat(ctx.device, product) || (overlap(out, rows) && out->data != rows->data)) {
        return 0;
    }
    few_rows_type type;
    GGML_ASSERT(few_rows_type_of(product->src[0]->type, type));
    const k_order order = order_of(type);
    row_tiles &   kept  = row_tiles::of(ctx);
    norm_args     args  = {};
    args.rows           = rows_of(rows, kept.tiles(order, few_rows_tile_bytes((int) rows->ne[1], (int) rows->ne[0])));
    args.weight         = (const float *) weight->data;
    args.out            = (float *) out->data;
    args.out_stride     = stride_of(out);
    memcpy(&args.eps, norm->op_params, sizeof args.eps);
    few_rows_norm(order, args, ctx.stream());
    kept.keep(out, order, i + 1);
    return 1;
}

}   // namespace

int dflash_cuda_set_few_rows(int device, ggml_type type, int rows) {
    if (!has_few_rows(device, type)) {
        return 0;
    }
    if (rows >= 0) {
        few_rows_from[device][type] = std::min(rows, NEVER);
    }
    return from_rows(device, type);
}

bool dflash_cuda_has_mul_mat(int device, const ggml_tensor * dst) {
    const ggml_tensor *weights = dst->src[0], *rows = dst->src[1];
    few_rows_type      type;
    return dst->op == GGML_OP_MUL_MAT && rows->ne[1] <= MOST_ROWS && has_few_rows(device, weights->type) &&
           rows->ne[1] >= from_rows(device, weights->type) && are_weights(weights) && has_aligned_rows(rows) &&
           dst->type == GGML_TYPE_F32 && dst->nb[0] == sizeof(float) && dst->ne[0] < 1 << 24 &&
           few_rows_type_of(weights->type, type) && few_rows_fit(type, (int) rows->ne[1], most_shared(device));
}

void dflash_cuda_mul_mat(ggml_backend_cuda_context & ctx, ggml_tensor * dst) {
    multiply(ctx, product_of(ctx.device, dst, dst), dst->src[1]);
}

int dflash_cuda_fuse(ggml_backend_cuda_context & ctx, const ggml_cgraph * graph, int i) {
    if (!shares_memory(ctx)) {
        return 0;
    }
    row_tiles::of(ctx).reach(graph, i);
    switch (graph->nodes[i]->op) {
        case GGML_OP_RMS_NORM: return fuse_norm(ctx, graph, i);
        case GGML_OP_MUL_MAT: {
            const int n = fuse_gated(ctx, graph, i);
            return n ? n : fuse_added(ctx, graph, i);
        }
        default: return 0;
    }
}

void dflash_cuda_forget(const ggml_backend_cuda_context & ctx) { row_tiles::forget(ctx); }

#else   // HIP and MUSA: no mma.sync

int  dflash_cuda_set_few_rows(int, ggml_type, int) { return 0; }
bool dflash_cuda_has_mul_mat(int, const ggml_tensor *) { return false; }
void dflash_cuda_mul_mat(ggml_backend_cuda_context &, ggml_tensor *) { GGML_ABORT("no kernels for few rows"); }
int  dflash_cuda_fuse(ggml_backend_cuda_context &, const ggml_cgraph *, int) { return 0; }
void dflash_cuda_forget(const ggml_backend_cuda_context &) {}

#endif
