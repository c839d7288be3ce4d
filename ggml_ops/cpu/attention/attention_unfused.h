// Attention over a KV cache without flash attention, on the CPU: the three ops that a graph makes of it, for passes of
// any width.
//
// Stock ggml has other kernels for one row than for more, and adds up a softmax and the values by where cells lie. Here
// K and V are read once for all rows and heads of a KV group, and a row's result is the same, bit for bit, whatever
// else is in the pass, however many threads work, and whatever masked cells lie between its own (attention.h promises
// the same of the fused op):
//   scores    MUL_MAT of K in a cache with Q: one chain of multiply-adds per (row, cell), along the head dimension
//   weights   SOFT_MAX: the maximum first, the denominator in fixed point (2^-40), so that the order does not count
//   values    MUL_MAT of transposed V with what a SOFT_MAX gave: one chain per (row, column), in cell order; a masked
//   cell adds exactly zero

#pragma once

#include "ggml.h"

#include <cstddef>
#include <cstdint>

struct ggml_compute_params;

namespace dflash {

// Whether this CPU and this op are served; what is not stays with ggml.
bool   unfused_fits(const ggml_tensor * op);
size_t unfused_work_size(int n_threads, const ggml_tensor * op);   // bytes
void   unfused_compute(const ggml_compute_params * params, ggml_tensor * op);

// ---- between unfused.cpp and the kernels of an instruction set ----

// Strides of K and V in bytes, all others in floats. A lane is one (row, head) pair of a KV head; lanes of an operand
// lie at equal distances.
struct unfused_kernels {
    int block;   // cells that are worked on at once

    // K of n cells as floats, blocks one after the other, within a block [dk][block]; zeros behind the last cell;
    // scratch: [block * dk]
    void (*turn)(ggml_type type, const char * k, size_t cell, int64_t n, int64_t dk, float * scratch, float * turned);
    // out[l][c] = q[l] . k[c] for n turned cells
    void (*scores)(
        const float * turned, int64_t n, int64_t dk, const float * q, int64_t lanes, float * out, int64_t stride);
    // A row of n cells; x and out may be the same. At most one mask is not null; sink: minus infinity if there is none.
    // Zeros if no cell is visible.
    void (*softmax)(const float * x, float * out, int64_t n, float scale, float slope, const ggml_fp16_t * half_mask,
        const float * mask, float sink);
    // out[l][d] = sum over n cells of p[l][c] v[d][c]; columns of v are `column` bytes apart; scratch: values_scratch()
    void (*values)(ggml_type type, const char * v, size_t column, int64_t n, int64_t dv, const float * p, int64_t lanes,
        int64_t stride, float * out, int64_t out_stride, float * scratch);
};

constexpr int64_t VALUE_LANES = 128;   // most that values() takes

// Floats: columns as read, turned, and the last cells of every lane.
inline size_t values_scratch(const unfused_kernels & kernels, int64_t dv) {
    return (size_t) kernels.block * (kernels.block + dv + VALUE_LANES);
}

// What this CPU can run, the best first, null behind the last.
const unfused_kernels * const * unfused_kernel_sets();

}   // namespace dflash
