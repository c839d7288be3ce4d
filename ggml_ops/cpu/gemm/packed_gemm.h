// Products with packed weights (packed_weights.h) as ggml ops: MUL_MAT and MUL_MAT_ID.

#pragma once

#include "ggml.h"

#include <cstddef>
#include <cstdint>

struct ggml_compute_params;

namespace dflash {

// Whether a weight, and weights of a type at all, can be packed.
bool can_pack(const ggml_tensor * w);
bool can_pack_type(ggml_type type);

// Whether an op multiplies packed weights, and whether we can compute it.
bool has_packed_weights(const ggml_tensor * op);
bool packed_gemm_fits(const ggml_tensor * op);

size_t packed_gemm_work_size(int n_threads, const ggml_tensor * op);   // bytes
void   packed_gemm_compute(const ggml_compute_params * params, ggml_tensor * op);

// ---- for op_fusion.cpp ----

// Whether an op is a MUL_MAT with a single packed matrix.
bool is_packed_mul_mat(const ggml_tensor * op);
// Whether both products can use the same quantized rows: same input, and types that quantize alike.
bool share_quantized_rows(const ggml_tensor * a, const ggml_tensor * b);

// packed_gemm_compute() in two halves, for a caller that computes the input itself: every thread quantizes the values
// it has computed, then all threads multiply. Several products of the same input share the rows (share_quantized_rows),
// which are quantized once; their panels are distributed as if they were one matrix.

// x: values [begin, end) of row i of the input; whole blocks of the type.
void packed_gemm_quantize(
    const ggml_compute_params * params, const ggml_tensor * op, int64_t i, const float * x, int64_t begin, int64_t end);
// Quantizes a thread's share of the rows of an input in memory.
void packed_gemm_quantize(const ggml_compute_params * params, const ggml_tensor * op);
void packed_gemm_multiply(const ggml_compute_params * params, ggml_tensor * const * ops, int n_ops);

// Whether packed_gemm_multiply_swiglu() supports this SWIGLU of two products of the same input.
bool packed_swiglu_fits(const ggml_tensor * glu);
// Computes gate and up (whose rows have been quantized), their SWIGLU, and the `n_ops` products with it. Results of
// gate and up stay with the thread that computes them and are never written; the result of SWIGLU only if `write_glu`.
void packed_gemm_multiply_swiglu(
    const ggml_compute_params * params, const ggml_tensor * glu, bool write_glu, ggml_tensor * const * ops, int n_ops);

}   // namespace dflash
