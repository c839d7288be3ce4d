#include "cpu/gemm/packed_gemm.h"

#include "cpu/gemm/rows.h"
#include "ggml-backend-impl.h"
#include "ggml-cpu-impl.h"
#include "ggml-impl.h"
#include "cpu/dispatch.h"
#include "cpu/gemm/packed_layout.h"
#include "cpu/switches.h"
#include "vec.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace dflash {

namespace {

constexpr int64_t CHUNK_ROWS  = 64;   // rows of a pass that are computed before the next panel is read
constexpr int64_t MOST_PANELS = 16;   // that are computed at once where results lie apart
constexpr int64_t BLOCK_PANELS =
    QK_K / PANEL;   // whose results are whole blocks of every type that rows are quantized to
constexpr int64_t GLU_RESULTS =
    64 << 10;   // floats of gate, or of up, that a thread has at once: 256 KiB each at most, which a second cache holds
constexpr size_t LEAST_PIECE = 64 << 10;   // bytes of weights that are worth a call of a kernel: the first ones of each
                                           // have not been asked for ahead of time

// How panels are handed out: three quarters of them in one piece for every thread, then half of the rest, and so on, so
// that threads read long stretches of memory and yet end together, as long as none is less than 0.6 times as fast as
// the others. In fours where possible: one row takes four at once.
struct pieces {
    int64_t panels;
    int     threads, grain, levels = 1;

    // grain: what is not divided (panels)
    pieces(int64_t panels, int threads, size_t panel_bytes, int grain = 4) :
        panels(panels), threads(threads), grain(grain) {
        const int64_t least = std::max<int64_t>(grain, LEAST_PIECE / panel_bytes);
        while (left(levels) >= least * threads) {
            ++levels;
        }
    }
    int64_t count() const { return (int64_t) levels * threads; }
    int64_t begin(int64_t piece) const {
        const int64_t level = piece / threads, from = start(level);
        return level == levels ? panels
                               : from + (start(level + 1) - from) / grain * (piece % threads) / threads * grain;
    }
    int64_t left(int level) const { return level == 0 ? panels : panels >> (level + 1); }   // before a level
    int64_t start(int64_t level) const {
        return level == levels ? panels : (panels - left((int) level)) / (grain * threads) * (grain * threads);
    }   // so that shares are equal
};

// The work buffer: quantized rows; a mixture's are sorted by expert, and which they are follows.
char * rows_in(const ggml_compute_params * params) {
    return (char *) params->wdata + (64 - (uintptr_t) params->wdata % 64);
}   // where a cache line begins

size_t rows_size(const ggml_tensor * op) {
    const ggml_tensor *w = op->src[0], *x = op->src[1];
    const int64_t      n = op->op == GGML_OP_MUL_MAT_ID ? ggml_nelements(op->src[2]) : ggml_nrows(x);
    return ((size_t) n * row_bytes(w->type, w->ne[0]) + 7) / 8 * 8;
}

// Of gate and up, before those of what takes their SWIGLU; these begin at a cache line too.
size_t glu_rows_size(const ggml_tensor * glu) { return (rows_size(glu->src[0]) + 63) / 64 * 64; }

// Threads come for pieces when they are ready; a result does not depend on who computes it. gone: the pieces of this op
// that were handed out before, in a round that has ended. (Every one of them was followed by a look at the counter, so
// that they are what it is ahead by.)
void begin_pieces(const ggml_compute_params * params, int64_t gone = 0) {
    if (params->ith == 0 && gone == 0) {
        ggml_threadpool_chunk_set(params->threadpool, params->nth);
    }
    ggml_barrier(params->threadpool);
}

template <class F> void each_piece(const ggml_compute_params * params, int64_t count, int64_t gone, const F & f) {
    for (int64_t c = params->ith; c < count; c = ggml_threadpool_chunk_add(params->threadpool, 1) - gone) {
        f(c);
    }
}

size_t panel_bytes(const ggml_tensor * w) {
    return (size_t) (w->ne[0] / panel_block(w->type)) * panel_block_bytes(w->type);
}

// Panels [begin, end) of one matrix and `take` rows, results in rows that output(i) gives.
template <class F>
void multiply_apart(const ggml_tensor * w, const char * data, int64_t begin, int64_t end, const char * rows,
    size_t stride, int64_t take, const F & output) {
    const int64_t blocks = w->ne[0] / panel_block(w->type);
    for (int64_t p = begin; p < end; p += MOST_PANELS) {
        alignas(64) float out[CHUNK_ROWS * MOST_PANELS * PANEL];
        const int64_t     some = std::min(MOST_PANELS, end - p), width = some * PANEL;
        panel_find_kernel(w->type)(
            data + p * blocks * panel_block_bytes(w->type), blocks, 0, some, rows, stride, (int) take, out, width);
        for (int64_t i = 0; i < take; ++i) {
            std::memcpy(output(i) + p * PANEL, out + i * width, std::min(width, w->ne[1] - p * PANEL) * sizeof(float));
        }
    }
}

}   // namespace

bool panel_fits(const ggml_tensor * w) {
    static const bool on = is_on("DFLASH_PANELS");
    return on && panel_has_type(w->type) && panel_find_kernel(w->type) && w->ne[3] == 1 &&
           w->ne[0] % panel_block(w->type) == 0;
}

int64_t panels_of(const ggml_tensor * w) { return (w->ne[1] + PANEL - 1) / PANEL; }

bool product_is_ours(const ggml_tensor * op) {
    return op->op == GGML_OP_MUL_MAT && op->src[0]->buffer && op->src[0]->buffer->buft == dflash_panel_buffer_type() &&
           op->src[0]->ne[2] == 1 && is_plain(op->src[1]) && op->type == GGML_TYPE_F32;
}

bool products_share_rows(const ggml_tensor * a, const ggml_tensor * b) {
    return a->src[1] == b->src[1] && row_kind(a->src[0]->type) == row_kind(b->src[0]->type);
}

bool product_takes_glu(const ggml_tensor * glu) {
    const ggml_tensor *gate = glu->src[0], *up = glu->src[1];
    return product_is_ours(gate) && product_is_ours(up) && products_share_rows(gate, up) &&
           gate->src[0]->type == up->src[0]->type && gate->ne[2] * gate->ne[3] == 1 && ggml_are_same_shape(gate, up) &&
           gate->ne[0] % QK_K == 0;
}

size_t product_work_size(const ggml_tensor * op) {
    const ggml_tensor * x         = op->src[1];
    const bool          after_glu = op->op == GGML_OP_MUL_MAT && x->op == GGML_OP_GLU && x->src[1] &&
                           product_takes_glu(x);   // then both inputs are there at once
    return 64 + (after_glu ? glu_rows_size(x) : 0) + rows_size(op) +
           (op->op == GGML_OP_MUL_MAT_ID ? experts::bytes(op) : 0);
}

namespace {

void quantize(const ggml_tensor * op, char * rows, int64_t i, const float * x, int64_t from, int64_t to) {
    const ggml_tensor * w = op->src[0];
    row_quantize(w->type, x, rows + i * row_bytes(w->type, w->ne[0]), w->ne[0], from, to);
}

void multiply(
    const ggml_compute_params * params, ggml_tensor * const * ops, int count, const char * rows, int64_t gone) {
    const int64_t n      = ggml_nrows(ops[0]->src[1]);
    const size_t  stride = row_bytes(ops[0]->src[0]->type, ops[0]->src[0]->ne[0]);
    int64_t       panels = 0;
    for (int o = 0; o < count; ++o) {
        panels += panels_of(ops[o]->src[0]);
    }
    const pieces all(panels, params->nth, panel_bytes(ops[0]->src[0]));
    begin_pieces(params, gone);
    each_piece(params, all.count(), gone, [&](int64_t piece) {
        int64_t first = 0;   // panel of the matrix among all
        for (int o = 0; o < count; ++o) {
            ggml_tensor *       op    = ops[o];
            const ggml_tensor * w     = op->src[0];
            const int64_t       begin = std::max<int64_t>(0, all.begin(piece) - first),
                          end         = std::min(panels_of(w), all.begin(piece + 1) - first);
            first += panels_of(w);
            for (int64_t i = 0; begin < end && i < n; i += CHUNK_ROWS) {
                const int64_t take = std::min(CHUNK_ROWS, n - i);
                if (op->ne[2] * op->ne[3] == 1 && end * PANEL <= w->ne[1]) {
                    panel_find_kernel(w->type)(w->data, w->ne[0] / panel_block(w->type), begin, end, rows + i * stride,
                        stride, (int) take, (float *) row_of(op, i), op->nb[1] / sizeof(float));
                } else {   // rows that lie apart, or columns that do not exist
                    multiply_apart(w, (const char *) w->data, begin, end, rows + i * stride, stride, take,
                        [&](int64_t j) { return (float *) row_of(op, i + j); });
                }
            }
        }
    });
}

}   // namespace

void product_quantize(
    const ggml_compute_params * params, const ggml_tensor * op, int64_t i, const float * x, int64_t from, int64_t to) {
    quantize(op, rows_in(params), i, x, from, to);
}

void product_quantize(const ggml_compute_params * params, const ggml_tensor * op) {
    const ggml_tensor * x = op->src[1];
    for (int64_t i = params->ith; i < ggml_nrows(x); i += params->nth) {
        product_quantize(params, op, i, (const float *) row_of(x, i), 0, x->ne[0]);
    }
}

void product_multiply(const ggml_compute_params * params, ggml_tensor * const * ops, int count) {
    multiply(params, ops, count, rows_in(params), 0);
}

void product_multiply_glu(
    const ggml_compute_params * params, const ggml_tensor * glu, bool seen, ggml_tensor * const * ops, int count) {
    const ggml_tensor * w[2] = { glu->src[0]->src[0], glu->src[1]->src[0] };
    const int64_t       n = ggml_nrows(glu), blocks = w[0]->ne[0] / panel_block(w[0]->type);
    const size_t        bytes = panel_bytes(w[0]), stride = row_bytes(w[0]->type, w[0]->ne[0]);
    const char *        rows   = rows_in(params);
    char *              made   = rows_in(params) + glu_rows_size(glu);
    const panel_kernel  kernel = panel_find_kernel(w[0]->type);
    // a piece is whole blocks of what is quantized
    const pieces all(panels_of(w[0]), params->nth, 2 * bytes, std::max(4, panel_block(ops[0]->src[0]->type) / PANEL));
    begin_pieces(params);
    each_piece(params, all.count(), 0, [&](int64_t piece) {
        static thread_local std::vector<float>
            memory;   // of results, which are read while they are in the inner caches
        memory.resize(2 * GLU_RESULTS);
        for (int64_t i = 0; i < n; i += CHUNK_ROWS) {
            const int64_t take = std::min(CHUNK_ROWS, n - i),
                          most = (GLU_RESULTS / take - PANEL) / PANEL / BLOCK_PANELS * BLOCK_PANELS;
            for (int64_t p = all.begin(piece); p < all.begin(piece + 1); p += most) {
                const int64_t some = std::min(most, all.begin(piece + 1) - p), width = some * PANEL,
                              apart  = width + PANEL;   // (rows a power of two apart would share few sets of a cache)
                float * const out[2] = { memory.data(), memory.data() + GLU_RESULTS };
                for (int m = 0; m < 2; ++m) {
                    kernel((const char *) w[m]->data + p * bytes, blocks, 0, some, rows + i * stride, stride,
                        (int) take, out[m], apart);
                }
                for (int64_t r = 0; r < take; ++r) {
                    float * to = seen ? (float *) row_of(glu, i + r) + p * PANEL : out[0] + r * apart;
                    ggml_vec_swiglu_f32((int) width, to, out[0] + r * apart, out[1] + r * apart);
                    quantize(ops[0], made, i + r, to, p * PANEL, p * PANEL + width);
                }
            }
        }
    });
    multiply(params, ops, count, made, all.count());
}

void product_compute(const ggml_compute_params * params, ggml_tensor * const * ops, int count) {
    product_quantize(params, ops[0]);
    product_multiply(params, ops, count);
}

void product_compute_mixture(const ggml_compute_params * params, ggml_tensor * op) {
    const ggml_tensor * w = op->src[0];
    const int64_t       k = w->ne[0], panels = panels_of(w);
    const size_t        stride = row_bytes(w->type, k), expert_bytes = (size_t) panels * panel_bytes(w);
    char *              rows = rows_in(params);
    experts             sorted(op, rows + rows_size(op));
    if (params->ith == 0) {
        sorted.sort(op);
    }
    ggml_barrier(params->threadpool);
    for (int64_t i = params->ith; i < sorted.first[w->ne[2]]; i += params->nth) {
        row_quantize(w->type, experts::input(op, sorted.pairs[i]), rows + i * stride, k, 0, k);
    }
    const pieces all(panels, params->nth, panel_bytes(w));
    begin_pieces(params);
    each_piece(params, all.count() * w->ne[2], 0, [&](int64_t c) {
        const int64_t e = c / all.count(), piece = c % all.count(), last = sorted.first[e + 1];
        for (int64_t i = sorted.first[e]; i < last; i += CHUNK_ROWS) {
            multiply_apart(w, (const char *) w->data + e * expert_bytes, all.begin(piece), all.begin(piece + 1),
                rows + i * stride, stride, std::min(CHUNK_ROWS, last - i),
                [&](int64_t j) { return experts::output(op, sorted.pairs[i + j]); });
        }
    });
}

}   // namespace dflash
