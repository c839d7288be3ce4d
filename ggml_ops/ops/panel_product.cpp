#include "panel_product.h"

#include "experts.h"
#include "ggml-backend-impl.h"
#include "ggml-cpu-impl.h"
#include "ggml-impl.h"
#include "panel_buffer.h"
#include "panel_layout.h"
#include "switches.h"

#include <algorithm>
#include <cstring>

namespace dflash {

namespace {

constexpr int64_t CHUNK_ROWS  = 64;   // rows of a pass that are computed before the next panel is read
constexpr int64_t MOST_PANELS = 16;   // that are computed at once where results lie apart

// How panels are handed out: half of them in one piece for every thread, then half of the rest, and so on, so that threads read long stretches of memory
// and yet end together. In fours where possible: one row takes four at once.
struct pieces {
    int64_t panels;
    int     threads, levels = 1;

    pieces(int64_t panels, int threads) : panels(panels), threads(threads) {
        while (panels >> levels >= 4 * threads) { ++levels; }
    }
    int64_t count() const { return (int64_t) levels * threads; }
    int64_t begin(int64_t piece) const {
        const int64_t level = piece / threads, from = start(level);
        return level == levels ? panels : from + (start(level + 1) - from) / 4 * (piece % threads) / threads * 4;
    }
    int64_t start(int64_t level) const { return level == levels ? panels : (panels - (panels >> level)) / 4 * 4; }
};

// The work buffer: quantized rows; a mixture's are sorted by expert, and which they are follows.
char * rows_in(const ggml_compute_params * params) { return (char *) params->wdata + (64 - (uintptr_t) params->wdata % 64); }   // where a cache line begins

size_t rows_size(const ggml_tensor * op) {
    const ggml_tensor * w = op->src[0], * x = op->src[1];
    const int64_t n = op->op == GGML_OP_MUL_MAT_ID ? ggml_nelements(op->src[2]) : ggml_nrows(x);
    return ((size_t) n * row_bytes(w->type, w->ne[0]) + 7) / 8 * 8;
}

// Threads come for pieces when they are ready; a result does not depend on who computes it.
void begin_pieces(const ggml_compute_params * params) {
    if (params->ith == 0) {
        ggml_threadpool_chunk_set(params->threadpool, params->nth);
    }
    ggml_barrier(params->threadpool);
}

template <class F> void each_piece(const ggml_compute_params * params, int64_t count, const F & f) {
    for (int64_t c = params->ith; c < count; c = ggml_threadpool_chunk_add(params->threadpool, 1)) {
        f(c);
    }
}

// Panels [begin, end) of one matrix and `take` rows, results in rows that output(i) gives.
template <class F> void multiply_apart(const ggml_tensor * w, const char * data, int64_t begin, int64_t end, const char * rows, size_t stride, int64_t take, const F & output) {
    const int64_t blocks = w->ne[0] / panel_block(w->type);
    for (int64_t p = begin; p < end; p += MOST_PANELS) {
        alignas(64) float out[CHUNK_ROWS * MOST_PANELS * PANEL];
        const int64_t some = std::min(MOST_PANELS, end - p), width = some * PANEL;
        panel_find_kernel(w->type)(data + p * blocks * panel_block_bytes(w->type), blocks, 0, some, rows, stride, (int) take, out, width);
        for (int64_t i = 0; i < take; ++i) {
            std::memcpy(output(i) + p * PANEL, out + i * width, std::min(width, w->ne[1] - p * PANEL) * sizeof(float));
        }
    }
}

}  // namespace

bool panel_fits(const ggml_tensor * w) {
    static const bool on = is_on("DFLASH_PANELS");
    return on && panel_has_type(w->type) && panel_find_kernel(w->type) && w->ne[3] == 1 && w->ne[0] % panel_block(w->type) == 0;
}

int64_t panels_of(const ggml_tensor * w) { return (w->ne[1] + PANEL - 1) / PANEL; }

bool product_is_ours(const ggml_tensor * op) {
    return op->op == GGML_OP_MUL_MAT && op->src[0]->buffer && op->src[0]->buffer->buft == dflash_panel_buffer_type() && op->src[0]->ne[2] == 1 &&
        op->src[1]->type == GGML_TYPE_F32 && op->src[1]->nb[0] == sizeof(float) && op->type == GGML_TYPE_F32;
}

bool products_share_rows(const ggml_tensor * a, const ggml_tensor * b) { return a->src[1] == b->src[1] && row_kind(a->src[0]->type) == row_kind(b->src[0]->type); }

size_t product_work_size(const ggml_tensor * op) { return 64 + rows_size(op) + (op->op == GGML_OP_MUL_MAT_ID ? experts::bytes(op) : 0); }

void product_quantize(const ggml_compute_params * params, const ggml_tensor * op, int64_t i, const float * x, int64_t from, int64_t to) {
    const ggml_tensor * w = op->src[0];
    row_quantize(w->type, x, rows_in(params) + i * row_bytes(w->type, w->ne[0]), w->ne[0], from, to);
}

void product_multiply(const ggml_compute_params * params, ggml_tensor * const * ops, int count) {
    const int64_t n = ggml_nrows(ops[0]->src[1]);
    const size_t  stride = row_bytes(ops[0]->src[0]->type, ops[0]->src[0]->ne[0]);
    const char *  rows = rows_in(params);
    int64_t panels = 0;
    for (int o = 0; o < count; ++o) {
        panels += panels_of(ops[o]->src[0]);
    }
    const pieces all(panels, params->nth);
    begin_pieces(params);
    each_piece(params, all.count(), [&](int64_t piece) {
        int64_t first = 0;   // panel of the matrix among all
        for (int o = 0; o < count; ++o) {
            ggml_tensor * op = ops[o];
            const ggml_tensor * w = op->src[0];
            const int64_t begin = std::max<int64_t>(0, all.begin(piece) - first), end = std::min(panels_of(w), all.begin(piece + 1) - first);
            first += panels_of(w);
            for (int64_t i = 0; begin < end && i < n; i += CHUNK_ROWS) {
                const int64_t take = std::min(CHUNK_ROWS, n - i);
                if (op->ne[2] * op->ne[3] == 1 && end * PANEL <= w->ne[1]) {
                    panel_find_kernel(w->type)(w->data, w->ne[0] / panel_block(w->type), begin, end, rows + i * stride, stride, (int) take, (float *) row_of(op, i), op->nb[1] / sizeof(float));
                } else {   // rows that lie apart, or columns that do not exist
                    multiply_apart(w, (const char *) w->data, begin, end, rows + i * stride, stride, take, [&](int64_t j) { return (float *) row_of(op, i + j); });
                }
            }
        }
    });
}

void product_compute(const ggml_compute_params * params, ggml_tensor * const * ops, int count) {
    const ggml_tensor * x = ops[0]->src[1];
    for (int64_t i = params->ith; i < ggml_nrows(x); i += params->nth) {
        product_quantize(params, ops[0], i, (const float *) row_of(x, i), 0, x->ne[0]);
    }
    product_multiply(params, ops, count);
}

void product_compute_mixture(const ggml_compute_params * params, ggml_tensor * op) {
    const ggml_tensor * w = op->src[0];
    const int64_t k = w->ne[0], panels = panels_of(w);
    const size_t  stride = row_bytes(w->type, k), expert_bytes = (size_t) panels * (k / panel_block(w->type)) * panel_block_bytes(w->type);
    char * rows = rows_in(params);
    experts sorted(op, rows + rows_size(op));
    if (params->ith == 0) {
        sorted.sort(op);
    }
    ggml_barrier(params->threadpool);
    for (int64_t i = params->ith; i < sorted.first[w->ne[2]]; i += params->nth) {
        row_quantize(w->type, experts::input(op, sorted.pairs[i]), rows + i * stride, k, 0, k);
    }
    const pieces all(panels, params->nth);
    begin_pieces(params);
    each_piece(params, all.count() * w->ne[2], [&](int64_t c) {
        const int64_t e = c / all.count(), piece = c % all.count(), last = sorted.first[e + 1];
        for (int64_t i = sorted.first[e]; i < last; i += CHUNK_ROWS) {
            multiply_apart(w, (const char *) w->data + e * expert_bytes, all.begin(piece), all.begin(piece + 1), rows + i * stride, stride, std::min(CHUNK_ROWS, last - i),
                [&](int64_t j) { return experts::output(op, sorted.pairs[i + j]); });
        }
    });
}

}  // namespace dflash
