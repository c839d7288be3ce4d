#include "cpu/gemm/packed_gemm.h"

#include "cpu/dispatch.h"
#include "cpu/gemm/expert_rows.h"
#include "cpu/gemm/packed_gemm_choice.h"
#include "cpu/gemm/packed_weights.h"
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
constexpr size_t  MIN_TASK = 64 << 10;   // bytes of weights per kernel call: each call starts without prefetched data

// How panels are distributed: three quarters of them in one task per thread, then half of the rest, and so on. So
// threads read long stretches of memory and still finish together, unless one has less than 0.6 times the speed of the
// others. Tasks are multiples of `grain` panels: a single row uses four at once.
struct panel_tasks {
    int64_t n_panels;
    int     n_threads, grain, n_levels = 1;

    panel_tasks(int64_t n_panels, int n_threads, size_t panel_bytes, int grain = 4) :
        n_panels(n_panels), n_threads(n_threads), grain(grain) {
        const int64_t smallest = std::max<int64_t>(grain, MIN_TASK / panel_bytes);
        while (left_before(n_levels) >= smallest * n_threads) {
            ++n_levels;
        }
    }
    int64_t count() const { return (int64_t) n_levels * n_threads; }
    int64_t begin(int64_t task) const {
        const int64_t level = task / n_threads, start = start_of(level);
        return level == n_levels
                   ? n_panels
                   : start + (start_of(level + 1) - start) / grain * (task % n_threads) / n_threads * grain;
    }

  private:
    int64_t left_before(int level) const { return level == 0 ? n_panels : n_panels >> (level + 1); }
    // All threads get the same share of a level.
    int64_t start_of(int64_t level) const {
        return level == n_levels ? n_panels
                                 : (n_panels - left_before((int) level)) / (grain * n_threads) * (grain * n_threads);
    }
};

size_t row_size_of(const ggml_tensor * op) { return quantized_row_size(op->src[0]->type, op->src[0]->ne[0]); }

// The work buffer holds quantized rows; for a mixture of experts, sorted by expert and followed by expert_rows.
size_t rows_size(const ggml_tensor * op) {
    const int64_t n = op->op == GGML_OP_MUL_MAT_ID ? ggml_nelements(op->src[2]) : ggml_nrows(op->src[1]);
    return ((size_t) n * row_size_of(op) + 7) / 8 * 8;
}

// The rows of gate and up come before the rows that are quantized from their SWIGLU.
size_t swiglu_rows_size(const ggml_tensor * glu) { return (rows_size(glu->src[0]) + 63) / 64 * 64; }

// Multiplies panels [begin, end) of one matrix with n rows; results go to output(i).
template <class F>
void multiply_to(const ggml_tensor * w, const char * matrix, int64_t begin, int64_t end, const char * rows,
    size_t row_size, int64_t n, const F & output) {
    const int64_t n_blocks = n_blocks_of(w);
    for (int64_t p = begin; p < end; p += MAX_PANELS) {
        alignas(64) float out[MAX_GEMM_ROWS * MAX_PANELS * PANEL];
        const int64_t     n_panels = std::min(MAX_PANELS, end - p), width = n_panels * PANEL;
        choose_packed_gemm(w->type)(
            { matrix + p * panel_bytes(w), n_blocks, 0, n_panels, rows, row_size, (int) n, out, (size_t) width });
        for (int64_t i = 0; i < n; ++i) {
            std::memcpy(output(i) + p * PANEL, out + i * width, std::min(width, w->ne[1] - p * PANEL) * sizeof(float));
        }
    }
}

void quantize(const ggml_tensor * op, char * rows, int64_t i, const float * x, int64_t begin, int64_t end) {
    const ggml_tensor * w = op->src[0];
    quantize_row(w->type, x, rows + i * row_size_of(op), w->ne[0], begin, end);
}

void multiply(
    const ggml_compute_params * params, ggml_tensor * const * ops, int n_ops, const char * rows, int64_t n_done) {
    const int64_t n_rows   = ggml_nrows(ops[0]->src[1]);
    const size_t  row_size = row_size_of(ops[0]);
    int64_t       n_panels = 0;
    for (int o = 0; o < n_ops; ++o) {
        n_panels += n_panels_of(ops[o]->src[0]);
    }
    const panel_tasks all(n_panels, params->nth, panel_bytes(ops[0]->src[0]));

    const auto compute = [&](int64_t task) {
        int64_t first = 0;   // the matrix's first panel among all panels
        for (int o = 0; o < n_ops; ++o) {
            ggml_tensor *       op    = ops[o];
            const ggml_tensor * w     = op->src[0];
            const int64_t       begin = std::max<int64_t>(0, all.begin(task) - first),
                          end         = std::min(n_panels_of(w), all.begin(task + 1) - first);
            first += n_panels_of(w);
            for (int64_t i = 0; begin < end && i < n_rows; i += MAX_GEMM_ROWS) {
                const int64_t n = std::min<int64_t>(MAX_GEMM_ROWS, n_rows - i);
                if (op->ne[2] * op->ne[3] == 1 && end * PANEL <= w->ne[1]) {
                    choose_packed_gemm(w->type)({ w->data, n_blocks_of(w), begin, end, rows + i * row_size, row_size,
                        (int) n, (float *) row_of(op, i), op->nb[1] / sizeof(float) });
                } else {   // scattered rows, or a last panel with missing columns
                    multiply_to(w, (const char *) w->data, begin, end, rows + i * row_size, row_size, n,
                        [&](int64_t j) { return (float *) row_of(op, i + j); });
                }
            }
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
    for_each_task(params, all.count() * w->ne[2], [&](int64_t c) {
        const int64_t expert = c / all.count(), task = c % all.count(), end = sorted.first[expert + 1];
        for (int64_t i = sorted.first[expert]; i < end; i += MAX_GEMM_ROWS) {
            multiply_to(w, (const char *) w->data + expert * expert_bytes, all.begin(task), all.begin(task + 1),
                rows + i * row_size, row_size, std::min<int64_t>(MAX_GEMM_ROWS, end - i),
                [&](int64_t j) { return expert_rows::output(op, sorted.pairs[i + j]); });
        }
    });
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
    const ggml_tensor *      gate = glu->src[0]->src[0], *up = glu->src[1]->src[0];   // of the same type and shape
    const int64_t            n_rows = ggml_nrows(glu), n_blocks = n_blocks_of(gate);
    const size_t             bytes = panel_bytes(gate), row_size = row_size_of(glu->src[0]);
    const char *             rows     = aligned_work(params);
    char *                   glu_rows = aligned_work(params) + swiglu_rows_size(glu);
    const packed_gemm_kernel kernel   = choose_packed_gemm(gate->type);
    // a task has to be whole blocks of the type that it is quantized to
    const int         grain = std::max(4, panel_block_size(ops[0]->src[0]->type) / PANEL);
    const panel_tasks all(n_panels_of(gate), params->nth, 2 * bytes, grain);
    for_each_task(params, all.count(), [&](int64_t task) {
        static thread_local std::vector<float> results;   // are read back while they are in L1 or L2
        results.resize(2 * SWIGLU_VALUES);
        float *const gate_out = results.data(), *const up_out = gate_out + SWIGLU_VALUES;
        for (int64_t i = 0; i < n_rows; i += MAX_GEMM_ROWS) {
            const int64_t n          = std::min<int64_t>(MAX_GEMM_ROWS, n_rows - i),
                          max_panels = (SWIGLU_VALUES / n - PANEL) / PANEL / QK_K_PANELS * QK_K_PANELS;
            for (int64_t p = all.begin(task); p < all.begin(task + 1); p += max_panels) {
                const int64_t    n_panels = std::min(max_panels, all.begin(task + 1) - p), width = n_panels * PANEL;
                const int64_t    stride = width + PANEL;   // rows a power of two apart would share few cache sets
                packed_gemm_call call   = { (const char *) gate->data + p * bytes, n_blocks, 0, n_panels,
                      rows + i * row_size, row_size, (int) n, gate_out, (size_t) stride };
                kernel(call);
                call.panels = (const char *) up->data + p * bytes;
                call.out    = up_out;
                kernel(call);
                for (int64_t r = 0; r < n; ++r) {
                    float * out = write_glu ? (float *) row_of(glu, i + r) + p * PANEL : gate_out + r * stride;
                    ggml_vec_swiglu_f32((int) width, out, gate_out + r * stride, up_out + r * stride);
                    quantize(ops[0], glu_rows, i + r, out, p * PANEL, p * PANEL + width);
                }
            }
        }
    });
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
