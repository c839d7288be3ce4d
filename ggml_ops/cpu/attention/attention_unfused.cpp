#include "cpu/attention/attention_unfused.h"

#include "cpu/gemm/rows.h"
#include "ggml-backend.h"
#include "ggml-cpu-impl.h"
#include "ggml-impl.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace dflash {

namespace {

constexpr int64_t SCORE_LANES  = 64;   // whose Q is kept at hand
constexpr int64_t SCORE_BLOCKS = 8;    // most blocks of cells that are turned at once

bool is_float(ggml_type type) { return type == GGML_TYPE_F32 || type == GGML_TYPE_F16 || type == GGML_TYPE_BF16; }

const ggml_tensor * origin(const ggml_tensor * t) {
    while (t->op == GGML_OP_VIEW || t->op == GGML_OP_RESHAPE || t->op == GGML_OP_PERMUTE ||
           t->op == GGML_OP_TRANSPOSE || t->op == GGML_OP_CONT) {
        t = t->src[0];
    }
    return t;
}

// A view of something that stays, and that is no weight.
bool in_cache(const ggml_tensor * k) {
    return k->view_src && k->view_src->op == GGML_OP_NONE && k->buffer &&
           ggml_backend_buffer_get_usage(k->buffer) != GGML_BACKEND_BUFFER_USAGE_WEIGHTS;
}

bool is_product(const ggml_tensor * op) {
    const ggml_tensor *w = op->src[0], *x = op->src[1];
    return op->op == GGML_OP_MUL_MAT && op->op_params[1] == 0 && is_plain(x) && w->nb[0] == ggml_type_size(w->type) &&
           x->ne[2] % w->ne[2] == 0 && x->ne[3] % w->ne[3] == 0 && ggml_is_contiguous(op) && !ggml_is_empty(op) &&
           w->ne[0] > 0;
}

bool is_values(const ggml_tensor * op) {
    const ggml_tensor *v = op->src[0], *p = op->src[1];
    return is_product(op) && origin(p)->op == GGML_OP_SOFT_MAX && is_float(v->type) && v->ne[1] % 16 == 0 &&
           (p->ne[2] == 1 || p->nb[2] == (size_t) p->ne[1] * p->nb[1]);
}

bool is_scores(const ggml_tensor * op) {
    return is_product(op) && in_cache(op->src[0]) &&
           (op->src[0]->type == GGML_TYPE_F32 || ggml_get_type_traits(op->src[0]->type)->to_float) &&
           op->src[0]->ne[0] % 16 == 0;
}

bool is_softmax(const ggml_tensor * op) {
    const ggml_tensor *x = op->src[0], *mask = op->src[1];
    return op->op == GGML_OP_SOFT_MAX && is_plain(x) && ggml_is_contiguous(op) &&
           (!mask || ((mask->type == GGML_TYPE_F32 || mask->type == GGML_TYPE_F16) &&
                         mask->nb[0] == ggml_type_size(mask->type)));
}

// How a product is divided into tasks. A result does not depend on it.
struct plan {
    int64_t lanes, groups, tiles, parts, chunk,
        tasks;   // parts: of the cells (scores) or columns (values), `chunk` each
};

plan plan_of(const ggml_tensor * op, int n_threads, int block) {
    const ggml_tensor *w = op->src[0], *x = op->src[1];
    plan               p = {};
    p.lanes              = x->ne[1] * (x->ne[2] / w->ne[2]);
    p.groups             = w->ne[2] * x->ne[3];
    if (is_values(op)) {
        p.tiles             = (p.lanes + VALUE_LANES - 1) / VALUE_LANES;
        const int64_t split = std::max<int64_t>(
            1, std::min(w->ne[1] / 16, (2 * n_threads + p.groups * p.tiles - 1) / (p.groups * p.tiles)));
        p.chunk = (w->ne[1] / 16 + split - 1) / split * 16;
    } else {
        const int64_t blocks = (w->ne[1] + block - 1) / block;
        p.tiles              = 1;
        p.chunk = block * std::max<int64_t>(1, std::min(SCORE_BLOCKS, blocks * p.groups / (4 * n_threads)));
    }
    p.parts = (w->ne[1] + p.chunk - 1) / p.chunk;
    p.tasks = p.groups * p.tiles * p.parts;
    return p;
}

// Floats of one thread.
size_t scratch_of(const ggml_tensor * op, const plan & p, const unfused_kernels & kernels) {
    const int64_t dk = op->src[0]->ne[0];
    const size_t  floats =
        is_values(op) ? values_scratch(kernels, p.chunk) : (size_t) (dk * (SCORE_LANES + kernels.block + p.chunk));
    return (floats + 15) / 16 * 16;
}

void compute_softmax(const ggml_compute_params * params, ggml_tensor * op, const unfused_kernels & kernels) {
    const ggml_tensor *x = op->src[0], *mask = op->src[1], *sinks = op->src[2];
    const float        scale = ggml_get_op_params_f32(op, 0), bias = ggml_get_op_params_f32(op, 1);
    const int64_t      heads = x->ne[2], rows = ggml_nrows(x),
                  bias_heads = (int64_t) 1 << (int) std::floor(std::log2((double) heads));
    const float low = std::pow(2.0f, -bias / bias_heads), high = std::pow(2.0f, -bias / 2.0f / bias_heads);
    for (int64_t i = rows * params->ith / params->nth; i < rows * (params->ith + 1) / params->nth; ++i) {
        const int64_t row = i % x->ne[1], head = i / x->ne[1] % heads, stream = i / (x->ne[1] * heads);
        const float   slope = bias <= 0.0f        ? 1.0f
                              : head < bias_heads ? powf(low, head + 1)
                                                  : powf(high, 2 * (head - bias_heads) + 1);
        const char *  m     = mask ? (const char *) mask->data + row * mask->nb[1] + head % mask->ne[2] * mask->nb[2] +
                                    stream % mask->ne[3] * mask->nb[3]
                                   : nullptr;
        const bool    half  = mask && mask->type == GGML_TYPE_F16;
        kernels.softmax((const float *) row_of(x, i), (float *) row_of(op, i), x->ne[0], scale, slope,
            half ? (const ggml_fp16_t *) m : nullptr, half ? nullptr : (const float *) m,
            sinks ? ((const float *) sinks->data)[head] : -INFINITY);
    }
}

void compute_scores(
    ggml_tensor * op, const unfused_kernels & kernels, const plan & p, int64_t group, int64_t first, float * scratch) {
    const ggml_tensor *k = op->src[0], *q = op->src[1];
    const int64_t      dk = k->ne[0], n = std::min(p.chunk, k->ne[1] - first), kv_head = group % k->ne[2],
                  stream = group / k->ne[2], head = kv_head * (q->ne[2] / k->ne[2]);
    float *const near = scratch, *const cells = near + SCORE_LANES * dk, *const turned = cells + kernels.block * dk;
    const char *  q0  = (const char *) q->data + stream * q->nb[3] + head * q->nb[2];
    float * const out = (float *) ((char *) op->data + stream * op->nb[3] + head * op->nb[2]) + first;
    kernels.turn(k->type,
        (const char *) k->data + stream / (q->ne[3] / k->ne[3]) * k->nb[3] + kv_head * k->nb[2] + first * k->nb[1],
        k->nb[1], n, dk, cells, turned);
    for (int64_t l = 0; l < p.lanes; l += SCORE_LANES) {   // lanes: rows of a head, then of the next head
        const int64_t take = std::min(SCORE_LANES, p.lanes - l);
        for (int64_t i = l; i < l + take; ++i) {
            std::memcpy(
                near + (i - l) * dk, q0 + i % q->ne[1] * q->nb[1] + i / q->ne[1] * q->nb[2], dk * sizeof(float));
        }
        kernels.scores(turned, n, dk, near, take, out + l * op->ne[0], op->ne[0]);
    }
}

void compute_values(ggml_tensor * op, const unfused_kernels & kernels, const plan & p, int64_t group, int64_t tile,
    int64_t column, float * scratch) {
    const ggml_tensor *v = op->src[0], *w = op->src[1];
    const int64_t      kv_head = group % v->ne[2], stream = group / v->ne[2], head = kv_head * (w->ne[2] / v->ne[2]),
                  l = tile * VALUE_LANES;
    const char * v0 =
        (const char *) v->data + stream / (w->ne[3] / v->ne[3]) * v->nb[3] + kv_head * v->nb[2] + column * v->nb[1];
    const char *  w0  = (const char *) w->data + stream * w->nb[3] + head * w->nb[2] + l * w->nb[1];
    float * const out = (float *) ((char *) op->data + stream * op->nb[3] + head * op->nb[2]) + l * op->ne[0] + column;
    kernels.values(v->type, v0, v->nb[1], v->ne[0], std::min(p.chunk, v->ne[1] - column), (const float *) w0,
        std::min(VALUE_LANES, p.lanes - l), w->nb[1] / sizeof(float), out, op->ne[0], scratch);
}

}   // namespace

bool unfused_fits(const ggml_tensor * op) {
    return *unfused_kernel_sets() && (is_softmax(op) || is_values(op) || is_scores(op));
}

size_t unfused_work_size(int n_threads, const ggml_tensor * op) {
    const unfused_kernels & kernels = **unfused_kernel_sets();
    return op->op == GGML_OP_SOFT_MAX
               ? 0
               : n_threads * scratch_of(op, plan_of(op, n_threads, kernels.block), kernels) * sizeof(float) + 64;
}

void unfused_compute(const ggml_compute_params * params, ggml_tensor * op) {
    const unfused_kernels & kernels = **unfused_kernel_sets();
    if (op->op == GGML_OP_SOFT_MAX) {
        compute_softmax(params, op, kernels);
        return;
    }
    const plan    p      = plan_of(op, params->nth, kernels.block);
    const bool    values = is_values(op);
    float * const mine =
        (float *) (((uintptr_t) params->wdata + 63) / 64 * 64) + params->ith * scratch_of(op, p, kernels);
    if (params->ith == 0) {
        ggml_threadpool_chunk_set(params->threadpool, params->nth);
    }
    ggml_barrier(params->threadpool);
    for (int64_t i = params->ith; i < p.tasks; i = ggml_threadpool_chunk_add(params->threadpool, 1)) {
        const int64_t part = i % p.parts, tile = i / p.parts % p.tiles, group = i / (p.parts * p.tiles);
        if (values) {
            compute_values(op, kernels, p, group, tile, part * p.chunk, mine);
        } else {
            compute_scores(op, kernels, p, group, part * p.chunk, mine);
        }
    }
}

}   // namespace dflash
