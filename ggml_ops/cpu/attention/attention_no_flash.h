// Attention over a KV cache without flash attention, on the CPU: its three ops, for passes of any width.
//
// Stock ggml uses different kernels for one row and for more, and the order in which it sums a softmax and the values
// depends on where cells are. Here K and V are read once for all rows and heads of a KV head, and a row's result is
// bit-identical whatever else is in the pass, for any number of threads, and whatever masked cells are between its own
// (as in flash_attention.h):
//   scores    MUL_MAT of K in a cache with Q: one chain of multiply-adds per (query, cell), along the head dimension
//   weights   SOFT_MAX: the maximum first, the denominator in fixed point (2^-40), so that the order does not matter
//   values    MUL_MAT of transposed V with the result of a SOFT_MAX: one chain per (query, column), in cell order; a
//             masked cell adds exactly zero
//
// A masked cell may contain anything, also what is not finite.

#pragma once

#include "ggml.h"

#include <cstddef>
#include <cstdint>

struct ggml_compute_params;

namespace dflash {

// Whether this CPU has a kernel for the op; otherwise ggml computes it.
bool   attention_no_flash_fits(const ggml_tensor * op);
size_t attention_no_flash_work_size(int n_threads, const ggml_tensor * op);   // bytes
void   attention_no_flash_compute(const ggml_compute_params * params, ggml_tensor * op);

// ---- between attention_no_flash.cpp and the kernels of an instruction set ----

// Strides of K and V are in bytes, all others in floats. A query is one (row, head) pair of a KV head; queries are
// equally spaced.
struct attention_no_flash_kernels {
    int block;   // cells processed together

    // Transposes K of n cells to floats, block after block, each block [dk][block], with zeros after the last cell;
    // scratch: [block * dk]
    void (*transpose_k)(
        ggml_type type, const char * k, size_t cell_stride, int64_t n, int64_t dk, float * scratch, float * transposed);
    // scores[i][c] = q[i] . k[c] for n transposed cells
    void (*multiply_q_k)(const float * transposed, int64_t n, int64_t dk, const float * q, int64_t n_queries,
        float * scores, int64_t scores_stride);
    // Softmax of a row of n cells; x and out may be the same. At most one mask is not null; sink: minus infinity if
    // there is none. Writes zeros if no cell is visible, and a NaN for a visible cell whose score is one.
    void (*softmax)(const float * x, float * out, int64_t n, float scale, float slope, const ggml_fp16_t * mask_f16,
        const float * mask_f32, float sink);
    // out[i][d] = sum over n cells of weights[i][c] v[d][c], where a weight of 0 adds 0 whatever the cell contains;
    // scratch: multiply_weights_v_scratch()
    void (*multiply_weights_v)(ggml_type type, const char * v, size_t column_stride, int64_t n, int64_t dv,
        const float * weights, int64_t n_queries, int64_t weights_stride, float * out, int64_t out_stride,
        float * scratch);
};

constexpr int64_t MAX_WEIGHTED_QUERIES = 128;   // most queries per call of multiply_weights_v()

// Number of floats: columns as read, transposed, and the last cells of every query.
inline size_t multiply_weights_v_scratch(const attention_no_flash_kernels & kernels, int64_t dv) {
    return (size_t) kernels.block * (kernels.block + dv + MAX_WEIGHTED_QUERIES);
}

}   // namespace dflash
