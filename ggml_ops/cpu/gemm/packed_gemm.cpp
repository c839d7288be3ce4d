#include "cpu/gemm/packed_gemm.h"

#include "cpu/dispatch.h"
#include "cpu/gemm/expert_rows.h"
#include "cpu/gemm/packed_gemm_choice.h"
#include "cpu/gemm/packed_weights.h"
#include "cpu/gemm/panel_tasks.h"
#include "cpu/quantize_rows/quantize_rows.h"
#include "cpu/tensor_rows.h"
#include "cpu/threads/tasks.h"
#include "ggml-backend-impl.h"
#include "ggml-cpu-impl.h"
#include "ggml-impl.h"
#include "vec.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace dflash {

namespace {

constexpr int64_t MAX_PANELS    = 16;             // computed at once if their results are not contiguous
constexpr int64_t QK_K_PANELS   = QK_K / PANEL;   // their results are whole blocks of every activation type
constexpr int64_t SWIGLU_VALUES = 64 << 10;       // of gate, or of up, per thread and task: 256 KiB each fit in L2

size_t row_size_of(const ggml_tensor * op) { return quantized_row_size(op->src[0]->type, op->src[0]->ne[0]); }

// The work buffer holds quantized rows; for a mixture of experts, sorted by expert and followed by expert_rows.
size_t rows_size(const ggml_tensor * op) {
    const int64_t n = op->op == GGML_OP_MUL_MAT_ID ? ggml_nelements(op->src[2]) : ggml_nrows(op->src[1]);
    return ((size_t) n * row_size_of(op) + 7) / 8 * 8;
}

// The rows of gate and up come before the rows that are quantized from their SWIGLU.
size_t swiglu_rows_size(const ggml_tensor * glu) { return (rows_size(glu->src[0]) + 63) / 64 * 64; }

// Panels [begin, end) of a matrix.
struct panel_range {
    const ggml_tensor * w;        // its type and shape
    const char *        matrix;   // w's data, or those of one of its experts
    int64_t             begin, end;

    panel_range part(int64_t from, int64_t to) const { return { w, matrix, from, to }; }
};
panel_range panels_of(const ggml_tensor * w, int64_t begin, int64_t end) {
    return { w, (const char *) w->data, begin, end };
}

// Quantized rows, at most MAX_GEMM_ROWS.
struct row_range {
    const char * first;
    int64_t      n;
};

// out: of the first panel.
void multiply_panels(const panel_range & panels, const row_range & rows, float * out, size_t out_stride) {
    const ggml_tensor * w = panels.w;
    packed_gemm_call    call;
    call.panels     = panels.matrix + panels.begin * panel_bytes(w);
    call.n_blocks   = n_blocks_of(w);
    call.n_panels   = panels.end - panels.begin;
    call.rows       = rows.first;
    call.row_stride = quantized_row_size(w->type, w->ne[0]);
    call.n_rows     = (int) rows.n;
    call.out        = out;
    call.out_stride = out_stride;
    choose_packed_gemm(w->type)(call);
}

// The same; results go to output(i), of panel 0.
template <class F> void multiply_to(const panel_range & panels, const row_range & rows, const F & output) {
    for (int64_t p = panels.begin; p < panels.end; p += MAX_PANELS) {
        alignas(64) float out[MAX_GEMM_ROWS * MAX_PANELS * PANEL];
        const int64_t     p_end = std::min(panels.end, p + MAX_PANELS), width = (p_end - p) * PANEL;
        const size_t      bytes = std::min(width, panels.w->ne[1] - p * PANEL) * sizeof(float);
        multiply_panels(panels.part(p, p_end), rows, out, width);
        for (int64_t i = 0; i < rows.n; ++i) {
            std::memcpy(output(i) + p * PANEL, out + i * width, bytes);
        }
    }
}

void quantize(const ggml_tensor * op, char * rows, int64_t i, const float * x, int64_t begin, int64_t end) {
    const ggml_tensor * w = op->src[0];
    quantize_row(w->type, x, rows + i * row_size_of(op), w->ne[0], begin, end);
}

// Panels [begin, end) of an op's matrix.
void multiply_rows(ggml_tensor * op, const char * rows, int64_t begin, int64_t end) {
    const panel_range panels   = panels_of(op->src[0], begin, end);
    const int64_t     n_rows   = ggml_nrows(op->src[1]);
    const bool        is_whole = op->ne[2] * op->ne[3] == 1 && end * PANEL <= panels.w->ne[1];
    for (int64_t i = 0; i < n_rows; i += MAX_GEMM_ROWS) {
        const row_range some = { rows + i * row_size_of(op), std::min<int64_t>(MAX_GEMM_ROWS, n_rows - i) };
        if (is_whole) {
            multiply_panels(panels, some, (float *) row_of(op, i) + begin * PANEL, op->nb[1] / sizeof(float));
        } else {   // scattered rows, or a last panel with missing columns
            multiply_to(panels, some, [&](int64_t j) { return (float *) row_of(op, i + j); });
        }
    }
}

void multiply(
    const ggml_compute_params * params, ggml_tensor * const * ops, int n_ops, const char * rows, int64_t n_done) {
    int64_t n_panels = 0;
    for (int o = 0; o < n_ops; ++o) {
        n_panels += n_panels_of(ops[o]->src[0]);
    }
    const panel_tasks all(n_panels, params->nth, panel_bytes(ops[0]->src[0]));

    const auto compute = [&](int64_t task) {
        int64_t first = 0;   // the matrix's first panel among all panels
        for (int o = 0; o < n_ops; ++o) {
            const int64_t n     = n_panels_of(ops[o]->src[0]);
            const int64_t begin = std::max<int64_t>(0, all.begin(task) - first),
                          end   = std::min(n, all.begin(task + 1) - first);
            if (begin < end) {
                multiply_rows(ops[o], rows, begin, end);
            }
            first += n;
        }
    };
    for_each_task(params, all.count(), compute, n_done);
}

void compute_mixture(const ggml_compute_params * params, ggml_tensor * op) {
    const ggml_tensor * w = op->src[0];
    const int64_t       k = w->ne[0], n_panels = n_panels_of(w);
    const size_t        row_size = row_size_of(op), expert_bytes = (size_t) n_panels * panel_bytes(w);
    char *              rows = aligned_work(params);
    expert_rows         sorted(op, rows + rows_size(op));
    if (params->ith == 0) {
        sorted.sort(op);
    }
    ggml_barrier(params->threadpool);
    for (int64_t i = params->ith; i < sorted.first[w->ne[2]]; i += params->nth) {
        quantize_row(w->type, expert_rows::input(op, sorted.pairs[i]), rows + i * row_size, k, 0, k);
    }
    const panel_tasks all(n_panels, params->nth, panel_bytes(w));
    for_each_task(params, all.count() * *sorted.n_used, [&](int64_t c) {
        const int64_t     expert = sorted.used[c / all.count()], task = c % all.count();
        const int64_t     end    = sorted.first[expert + 1];
        const panel_range panels = { w, (const char *) w->data + expert * expert_bytes, all.begin(task),
            all.begin(task + 1) };
        for (int64_t i = sorted.first[expert]; i < end; i += MAX_GEMM_ROWS) {
            multiply_to(panels, { rows + i * row_size, std::min<int64_t>(MAX_GEMM_ROWS, end - i) },
                [&](int64_t j) { return expert_rows::output(op, sorted.pairs[i + j]); });
        }
    });
}

// Gate, up and their SWIGLU, whose rows are quantized for a product.
struct swiglu_product {
    const ggml_tensor * glu;
    bool                writes_glu;   // something else reads it, too
    const ggml_tensor * product;
    const char *        rows;       // of gate and up
    char *              glu_rows;   // of `product`
};

// Panels [begin, end) of gate and of up.
void multiply_swiglu(const swiglu_product & op, int64_t begin, int64_t end) {
    static thread_local std::vector<float> results(2 * SWIGLU_VALUES);   // are read back while they are in L1 or L2
    float *const gate_out = results.data(), *const up_out = gate_out + SWIGLU_VALUES;
    const ggml_tensor *gate = op.glu->src[0]->src[0], *up = op.glu->src[1]->src[0];   // of the same type and shape
    const int64_t      n_rows = ggml_nrows(op.glu);
    for (int64_t i = 0; i < n_rows; i += MAX_GEMM_ROWS) {
        const row_range rows       = { op.rows + i * row_size_of(op.glu->src[0]),
                  std::min<int64_t>(MAX_GEMM_ROWS, n_rows - i) };
        const int64_t   max_panels = (SWIGLU_VALUES / rows.n - PANEL) / PANEL / QK_K_PANELS * QK_K_PANELS;
        for (int64_t p = begin; p < end; p += max_panels) {
            const int64_t p_end = std::min(end, p + max_panels), width = (p_end - p) * PANEL;
            const int64_t stride = width + PANEL;   // rows a power of two apart would share few cache sets
            multiply_panels(panels_of(gate, p, p_end), rows, gate_out, stride);
            multiply_panels(panels_of(up, p, p_end), rows, up_out, stride);
            for (int64_t r = 0; r < rows.n; ++r) {
                float * out = op.writes_glu ? (float *) row_of(op.glu, i + r) + p * PANEL : gate_out + r * stride;
                ggml_vec_swiglu_f32((int) width, out, gate_out + r * stride, up_out + r * stride);
                quantize(op.product, op.glu_rows, i + r, out, p * PANEL, p * PANEL + width);
            }
        }
    }
}

}   // namespace

bool can_pack_type(ggml_type type) { return has_panel_layout(type) && choose_packed_gemm(type); }

bool can_pack(const ggml_tensor * w) {
    return can_pack_type(w->type) && w->ne[3] == 1 && w->ne[0] % panel_block_size(w->type) == 0;
}

bool has_packed_weights(const ggml_tensor * op) {
    return (op->op == GGML_OP_MUL_MAT || op->op == GGML_OP_MUL_MAT_ID) && op->src[0]->buffer &&
           op->src[0]->buffer->buft == dflash_panel_buffer_type();
}

bool packed_gemm_fits(const ggml_tensor * op) {
    const ggml_tensor *w = op->src[0], *x = op->src[1];
    return has_packed_weights(op) && (op->op == GGML_OP_MUL_MAT_ID ? x->ne[3] == 1 : w->ne[2] == 1) &&
           ggml_is_contiguous(w) && can_pack(w) && is_plain(x) && op->type == GGML_TYPE_F32 &&
           (!x->buffer || ggml_backend_buft_is_host(x->buffer->buft));
}

bool is_packed_mul_mat(const ggml_tensor * op) {
    return op->op == GGML_OP_MUL_MAT && has_packed_weights(op) && op->src[0]->ne[2] == 1 && is_plain(op->src[1]) &&
           op->type == GGML_TYPE_F32;
}

bool share_quantized_rows(const ggml_tensor * a, const ggml_tensor * b) {
    return a->src[1] == b->src[1] && share_row_format(a->src[0]->type, b->src[0]->type);
}

bool packed_swiglu_fits(const ggml_tensor * glu) {
    const ggml_tensor *gate = glu->src[0], *up = glu->src[1];
    return is_packed_mul_mat(gate) && is_packed_mul_mat(up) && share_quantized_rows(gate, up) &&
           gate->src[0]->type == up->src[0]->type && gate->ne[2] * gate->ne[3] == 1 && ggml_are_same_shape(gate, up) &&
           gate->ne[0] % QK_K == 0;
}

size_t packed_gemm_work_size(int, const ggml_tensor * op) {
    const ggml_tensor * x = op->src[1];
    // the rows of gate and up are still needed while those of their SWIGLU are written
    const bool after_swiglu = op->op == GGML_OP_MUL_MAT && x->op == GGML_OP_GLU && x->src[1] && packed_swiglu_fits(x);
    return CACHE_LINE + (after_swiglu ? swiglu_rows_size(x) : 0) + rows_size(op) +
           (op->op == GGML_OP_MUL_MAT_ID ? expert_rows::size(op) : 0);
}

void packed_gemm_quantize(const ggml_compute_params * params, const ggml_tensor * op, int64_t i, const float * x,
    int64_t begin, int64_t end) {
    quantize(op, aligned_work(params), i, x, begin, end);
}

void packed_gemm_quantize(const ggml_compute_params * params, const ggml_tensor * op) {
    const ggml_tensor * x = op->src[1];
    for (int64_t i = params->ith; i < ggml_nrows(x); i += params->nth) {
        packed_gemm_quantize(params, op, i, (const float *) row_of(x, i), 0, x->ne[0]);
    }
}

void packed_gemm_multiply(const ggml_compute_params * params, ggml_tensor * const * ops, int n_ops) {
    multiply(params, ops, n_ops, aligned_work(params), 0);
}

void packed_gemm_multiply_swiglu(
    const ggml_compute_params * params, const ggml_tensor * glu, bool write_glu, ggml_tensor * const * ops, int n_ops) {
    const ggml_tensor *  gate = glu->src[0]->src[0];
    char *               rows = aligned_work(params), *glu_rows = rows + swiglu_rows_size(glu);
    const swiglu_product op = { glu, write_glu, ops[0], rows, glu_rows };
    // a task has to be whole blocks of the type that it is quantized to
    const int         grain = std::max(4, panel_block_size(ops[0]->src[0]->type) / PANEL);
    const panel_tasks all(n_panels_of(gate), params->nth, 2 * panel_bytes(gate), grain);
    for_each_task(
        params, all.count(), [&](int64_t task) { multiply_swiglu(op, all.begin(task), all.begin(task + 1)); });
    multiply(params, ops, n_ops, glu_rows, all.count());
}

void packed_gemm_compute(const ggml_compute_params * params, ggml_tensor * op) {
    if (op->op == GGML_OP_MUL_MAT_ID) {
        compute_mixture(params, op);
        return;
    }
    packed_gemm_quantize(params, op);
    packed_gemm_multiply(params, &op, 1);
}

}   // namespace dflash
