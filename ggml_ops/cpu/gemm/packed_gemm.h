// Products with weights in panels (packed_weights.h), as ops of ggml: MUL_MAT and MUL_MAT_ID.

#pragma once

#include "ggml.h"

#include <cstddef>
#include <cstdint>

struct ggml_compute_params;

namespace dflash {

// Whether panels can hold a weight.
bool can_pack(const ggml_tensor * w);

// Whether an op is a product with weights in panels, and whether we can compute it.
bool has_packed_weights(const ggml_tensor * op);
bool packed_gemm_fits(const ggml_tensor * op);

size_t packed_gemm_work_size(int n_threads, const ggml_tensor * op);   // bytes
void   packed_gemm_compute(const ggml_compute_params * params, ggml_tensor * op);

// ---- for op_fusion.cpp ----

// Whether an op is a MUL_MAT with one matrix in panels.
bool is_packed_mul_mat(const ggml_tensor * op);
// Whether both products take the same quantized rows: the same input, and types of one kind.
bool share_quantized_rows(const ggml_tensor * a, const ggml_tensor * b);

// packed_gemm_compute() in two halves, for a caller that makes the input itself: every thread quantizes what it has
// made, then all multiply. Several products of one input share the rows (share_quantized_rows): these are quantized
// once, and panels are handed out as if of one matrix.

// x: values [begin, end) of row i of the input, whole blocks of the type.
void packed_gemm_quantize(
    const ggml_compute_params * params, const ggml_tensor * op, int64_t i, const float * x, int64_t begin, int64_t end);
// A thread's share of the rows of an input that lies in memory.
void packed_gemm_quantize(const ggml_compute_params * params, const ggml_tensor * op);
void packed_gemm_multiply(const ggml_compute_params * params, ggml_tensor * const * ops, int n_ops);

// Whether packed_gemm_multiply_swiglu() can compute a SWIGLU of two products of one input.
bool packed_swiglu_fits(const ggml_tensor * glu);
// Gate and up (whose quantized rows are there), their SWIGLU, and the `n_ops` products with it. The results of gate and
// up stay with the thread that computes them and are not written; that of SWIGLU is written only if `write_glu`.
void packed_gemm_multiply_swiglu(
    const ggml_compute_params * params, const ggml_tensor * glu, bool write_glu, ggml_tensor * const * ops, int n_ops);

// ---- between packed_gemm.cpp and the kernels of an instruction set ----

// How far ahead kernels prefetch weights (bytes): the hardware's own prefetch comes too late.
constexpr int PREFETCH_AHEAD = 8192;

// out[r][16 * p + c] for panels [begin, end) and n_rows rows: `rows` are quantized_row_size() apart, out's rows
// out_stride floats. A result is a function of its row and its column alone: whatever else is computed beside it, its
// operations are the same.
using packed_gemm_kernel = void (*)(const void * panels, int64_t n_blocks, int64_t begin, int64_t end,
    const void * rows, size_t row_stride, int n_rows, float * out, size_t out_stride);

}   // namespace dflash
