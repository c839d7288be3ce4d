// Products with weights in panels (panel_layout.h), as ops of ggml: MUL_MAT and MUL_MAT_ID.

#pragma once

#include "ggml.h"

#include <cstddef>
#include <cstdint>

struct ggml_compute_params;

namespace dflash {

// Whether panels can hold a weight.
bool    panel_fits(const ggml_tensor * w);
int64_t panels_of(const ggml_tensor * w);   // of one matrix; columns that lack in the last are zero

// Whether an op is a product with one matrix that lies in panels.
bool product_is_ours(const ggml_tensor * op);
// Whether both products take the same rows: of the same input, quantized alike.
bool products_share_rows(const ggml_tensor * a, const ggml_tensor * b);

size_t product_work_size(const ggml_tensor * op);   // bytes

// Products of one input with `count` matrices, which share its rows (products_share_rows): quantized once, and panels
// handed out as if of one matrix.
void product_compute(const ggml_compute_params * params, ggml_tensor * const * ops, int count);
void product_compute_mixture(const ggml_compute_params * params, ggml_tensor * op);

// product_compute() in two halves, for whoever makes the input himself: every thread quantizes what it has made, then
// all multiply. x: positions [from, to) of row i of the input, which are whole blocks of the type.
void product_quantize(
    const ggml_compute_params * params, const ggml_tensor * op, int64_t i, const float * x, int64_t from, int64_t to);
void product_quantize(
    const ggml_compute_params * params, const ggml_tensor * op);   // a thread's share of rows that lie in memory
void product_multiply(const ggml_compute_params * params, ggml_tensor * const * ops, int count);

// Whether product_multiply_glu() takes a SWIGLU of two products of one input.
bool product_takes_glu(const ggml_tensor * glu);
// As product_multiply(), of gate and up; what SWIGLU makes of them never leaves the thread that computed it, which
// quantizes it for the `count` products that take it; then those. The results of gate and up are not written, and that
// of SWIGLU only if it is `seen` by others.
void product_multiply_glu(
    const ggml_compute_params * params, const ggml_tensor * glu, bool seen, ggml_tensor * const * ops, int count);

}   // namespace dflash
