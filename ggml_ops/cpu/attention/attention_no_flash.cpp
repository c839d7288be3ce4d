#include "cpu/attention/attention_no_flash.h"

#include "cpu/attention/alibi.h"
#include "cpu/isa/kernels.h"
#include "cpu/tensor_rows.h"
#include "cpu/threads/tasks.h"
#include "ggml-backend.h"
#include "ggml-cpu-impl.h"
#include "ggml-impl.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace dflash {

namespace {

constexpr int64_t SCORE_QUERIES = 64;   // most queries whose Q is copied together
constexpr int64_t SCORE_BLOCKS  = 8;    // most blocks of cells transposed together

bool is_float(ggml_type type) { return type == GGML_TYPE_F32 || type == GGML_TYPE_F16 || type == GGML_TYPE_BF16; }

// The op that produced t, through views and copies.
const ggml_tensor * origin(const ggml_tensor * t) {
    while (t->op == GGML_OP_VIEW || t->op == GGML_OP_RESHAPE || t->op == GGML_OP_PERMUTE ||
           t->op == GGML_OP_TRANSPOSE || t->op == GGML_OP_CONT) {
        t = t->src[0];
    }
    return t;
}

// Whether k is a view of a tensor that is neither computed nor a weight: of a KV cache.
bool is_in_cache(const ggml_tensor * k) {
    return k->view_src && k->view_src->op == GGML_OP_NONE && k->buffer &&
           ggml_backend_buffer_get_usage(k->buffer) != GGML_BACKEND_BUFFER_USAGE_WEIGHTS;
}

bool is_mul_mat(const ggml_tensor * op) {
    const ggml_tensor *w = op->src[0], *x = op->src[1];
    return op->op == GGML_OP_MUL_MAT && op->op_params[1] == 0 && is_plain(x) && w->nb[0] == ggml_type_size(w->type) &&
           x->ne[2] % w->ne[2] == 0 && x->ne[3] % w->ne[3] == 0 && ggml_is_contiguous(op) && !ggml_is_empty(op) &&
           w->ne[0] > 0;
}

bool is_values(const ggml_tensor * op) {
    const ggml_tensor *v = op->src[0], *weights = op->src[1];
    return is_mul_mat(op) && origin(weights)->op == GGML_OP_SOFT_MAX && is_float(v->type) && v->ne[1] % 16 == 0 &&
           (weights->ne[2] == 1 || weights->nb[2] == (size_t) weights->ne[1] * weights->nb[1]);
}

bool is_scores(const ggml_tensor * op) {
    return is_mul_mat(op) && is_in_cache(op->src[0]) &&
           (op->src[0]->type == GGML_TYPE_F32 || ggml_get_type_traits(op->src[0]->type)->to_float) &&
           op->src[0]->ne[0] % 16 == 0;
}

bool is_softmax(const ggml_tensor * op) {
    const ggml_tensor *x = op->src[0], *mask = op->src[1];
    return op->op == GGML_OP_SOFT_MAX && is_plain(x) && ggml_is_contiguous(op) &&
           (!mask || ((mask->type == GGML_TYPE_F32 || mask->type == GGML_TYPE_F16) &&
                         mask->nb[0] == ggml_type_size(mask->type)));
}

// How a MUL_MAT is split into tasks: a KV head of a stream, some of its queries (values only), and a chunk of cells
// (scores) or columns (values). Results do not depend on it.
struct task_split {
    int64_t n_queries, n_kv_heads, query_chunks, chunks, chunk, n_tasks;
};

task_split split_tasks(const ggml_tensor * op, int n_threads, int block) {
    const ggml_tensor *w = op->src[0], *x = op->src[1];
    task_split         s = {};
    s.n_queries          = x->ne[1] * (x->ne[2] / w->ne[2]);
    s.n_kv_heads         = w->ne[2] * x->ne[3];
    if (is_values(op)) {
        s.query_chunks         = (s.n_queries + MAX_WEIGHTED_QUERIES - 1) / MAX_WEIGHTED_QUERIES;
        const int64_t n_before = s.n_kv_heads * s.query_chunks, n_wanted = (2 * n_threads + n_before - 1) / n_before,
                      n_columns = w->ne[1] / 16;   // in units of 16
        const int64_t n_chunks  = std::max<int64_t>(1, std::min(n_columns, n_wanted));
        s.chunk                 = (n_columns + n_chunks - 1) / n_chunks * 16;
    } else {
        const int64_t n_blocks = (w->ne[1] + block - 1) / block;
        s.query_chunks         = 1;
        s.chunk = block * std::max<int64_t>(1, std::min(SCORE_BLOCKS, n_blocks * s.n_kv_heads / (4 * n_threads)));
    }
    s.chunks  = (w->ne[1] + s.chunk - 1) / s.chunk;
    s.n_tasks = s.n_kv_heads * s.query_chunks * s.chunks;
    return s;
}

// Number of floats per thread.
size_t scratch_of(const ggml_tensor * op, const task_split & split, const attention_no_flash_kernels & kernels) {
    const int64_t dk     = op->src[0]->ne[0];
    const size_t  floats = is_values(op) ? multiply_weights_v_scratch(kernels, split.chunk)
                                         : (size_t) (dk * (SCORE_QUERIES + kernels.block + split.chunk));
    return (floats + 15) / 16 * 16;
}

void compute_softmax(const ggml_compute_params * params, ggml_tensor * op, const attention_no_flash_kernels & kernels) {
    const ggml_tensor *x = op->src[0], *mask = op->src[1], *sinks = op->src[2];
    const float        scale   = ggml_get_op_params_f32(op, 0);
    const int64_t      n_heads = x->ne[2];
    const alibi_slopes slopes(ggml_get_op_params_f32(op, 1), n_heads);
    const auto [begin, end] = rows_of_thread(params, ggml_nrows(x));
    for (int64_t i = begin; i < end; ++i) {
        const int64_t row = i % x->ne[1], head = i / x->ne[1] % n_heads, stream = i / (x->ne[1] * n_heads);
        const char *  mask_row = mask ? (const char *) mask->data + row * mask->nb[1] +
                                           head % mask->ne[2] * mask->nb[2] + stream % mask->ne[3] * mask->nb[3]
                                      : nullptr;
        const bool    is_f16   = mask && mask->type == GGML_TYPE_F16;
        kernels.softmax((const float *) row_of(x, i), (float *) row_of(op, i), x->ne[0], scale, slopes.of(head),
            is_f16 ? (const ggml_fp16_t *) mask_row : nullptr, is_f16 ? nullptr : (const float *) mask_row,
            sinks ? ((const float *) sinks->data)[head] : -INFINITY);
    }
}

// Computes scores of the cells [first, first + chunk) of a KV head. kv_head counts over all streams.
void compute_scores(ggml_tensor * op, const attention_no_flash_kernels & kernels, const task_split & split,
    int64_t kv_head, int64_t first, float * scratch) {
    const ggml_tensor *k = op->src[0], *q = op->src[1];
    const int64_t      dk = k->ne[0], n_cells = std::min(split.chunk, k->ne[1] - first), head_of_k = kv_head % k->ne[2],
                  stream = kv_head / k->ne[2], head = head_of_k * (q->ne[2] / k->ne[2]);
    float *const queries = scratch, *const cells = queries + SCORE_QUERIES * dk,
                 *const transposed = cells + kernels.block * dk;
    const char *        q_head     = (const char *) q->data + stream * q->nb[3] + head * q->nb[2];
    float * const       scores     = (float *) ((char *) op->data + stream * op->nb[3] + head * op->nb[2]) + first;
    kernels.transpose_k(k->type,
        (const char *) k->data + stream / (q->ne[3] / k->ne[3]) * k->nb[3] + head_of_k * k->nb[2] + first * k->nb[1],
        k->nb[1], n_cells, dk, cells, transposed);
    // queries: all rows of a head, then those of the next
    for (int64_t begin = 0; begin < split.n_queries; begin += SCORE_QUERIES) {
        const int64_t n = std::min(SCORE_QUERIES, split.n_queries - begin);
        for (int64_t i = begin; i < begin + n; ++i) {
            std::memcpy(queries + (i - begin) * dk, q_head + i % q->ne[1] * q->nb[1] + i / q->ne[1] * q->nb[2],
                dk * sizeof(float));
        }
        kernels.multiply_q_k(transposed, n_cells, dk, queries, n, scores + begin * op->ne[0], op->ne[0]);
    }
}

// Computes values of some queries of a KV head, for columns from `column` on.
void compute_values(ggml_tensor * op, const attention_no_flash_kernels & kernels, const task_split & split,
    int64_t kv_head, int64_t query_chunk, int64_t column, float * scratch) {
    const ggml_tensor *v = op->src[0], *w = op->src[1];
    const int64_t head_of_v = kv_head % v->ne[2], stream = kv_head / v->ne[2], head = head_of_v * (w->ne[2] / v->ne[2]),
                  first = query_chunk * MAX_WEIGHTED_QUERIES;
    const char * values =
        (const char *) v->data + stream / (w->ne[3] / v->ne[3]) * v->nb[3] + head_of_v * v->nb[2] + column * v->nb[1];
    const char *  weights = (const char *) w->data + stream * w->nb[3] + head * w->nb[2] + first * w->nb[1];
    float * const out =
        (float *) ((char *) op->data + stream * op->nb[3] + head * op->nb[2]) + first * op->ne[0] + column;
    kernels.multiply_weights_v(v->type, values, v->nb[1], v->ne[0], std::min(split.chunk, v->ne[1] - column),
        (const float *) weights, std::min(MAX_WEIGHTED_QUERIES, split.n_queries - first), w->nb[1] / sizeof(float), out,
        op->ne[0], scratch);
}

}   // namespace

bool attention_no_flash_fits(const ggml_tensor * op) {
    return best_kernels() && (is_softmax(op) || is_values(op) || is_scores(op));
}

size_t attention_no_flash_work_size(int n_threads, const ggml_tensor * op) {
    if (op->op == GGML_OP_SOFT_MAX) {
        return 0;
    }
    const attention_no_flash_kernels & kernels = best_kernels()->attention_no_flash;
    return n_threads * scratch_of(op, split_tasks(op, n_threads, kernels.block), kernels) * sizeof(float) + CACHE_LINE;
}

void attention_no_flash_compute(const ggml_compute_params * params, ggml_tensor * op) {
    const attention_no_flash_kernels & kernels = best_kernels()->attention_no_flash;
    if (op->op == GGML_OP_SOFT_MAX) {
        compute_softmax(params, op, kernels);
        return;
    }
    const task_split split   = split_tasks(op, params->nth, kernels.block);
    const bool       values  = is_values(op);
    float * const    scratch = (float *) aligned_work(params) + params->ith * scratch_of(op, split, kernels);
    for_each_task(params, split.n_tasks, [&](int64_t i) {
        const int64_t chunk = i % split.chunks, query_chunk = i / split.chunks % split.query_chunks,
                      kv_head = i / (split.chunks * split.query_chunks);
        if (values) {
            compute_values(op, kernels, split, kv_head, query_chunk, chunk * split.chunk, scratch);
        } else {
            compute_scores(op, kernels, split, kv_head, chunk * split.chunk, scratch);
        }
    });
}

}   // namespace dflash
