// Products with float weights (F32, F16, BF16), of one matrix and of a mixture's experts, on the CPU: ggml's MUL_MAT
// and MUL_MAT_ID.
//
// Stock ggml has one kernel for one row and another for two and more; here a row's result is the same, bit for bit,
// whatever else is in the pass and however many threads work: W partial sums along the inner dimension, added in one
// order at the end. Activations stay F32.

#pragma once

#include "ggml.h"

#include <cstddef>
#include <cstdint>

struct ggml_compute_params;

namespace dflash {

bool   dense_fits(const ggml_tensor * op);
size_t dense_work_size(const ggml_tensor * op);   // bytes
void   dense_compute(const ggml_compute_params * params, ggml_tensor * op);

// out[r][c] = weights[c] . x[r] for rows [0, rows) and columns [c0, c1); weights' rows are `stride` bytes apart; k is a
// multiple of 16
using dense_kernel = void (*)(ggml_type type, const char * weights, size_t stride, int64_t k, int64_t c0, int64_t c1,
    const float * const * x, int64_t rows, float * const * out);

// What this CPU can run, the best first, null behind the last.
const dense_kernel * dense_kernels();

}   // namespace dflash
