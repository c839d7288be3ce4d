// Products with float weights (F32, F16, BF16) in the file's layout: ggml's MUL_MAT and MUL_MAT_ID on the CPU.
//
// Stock ggml has one kernel for a single row and another for more. Here a row's result has the same bits whatever else
// is in the pass and however many threads work: W partial sums along the inner dimension, always added in the same
// order at the end. Activations stay F32.

#pragma once

#include "ggml.h"

#include <cstddef>
#include <cstdint>

struct ggml_compute_params;

namespace dflash {

// Whether this CPU has a kernel for the op; otherwise ggml computes it.
bool   float_gemm_fits(const ggml_tensor * op);
size_t float_gemm_work_size(int n_threads, const ggml_tensor * op);   // bytes
void   float_gemm_compute(const ggml_compute_params * params, ggml_tensor * op);

// out[r][c] = weights[c] . x[r] for rows r below n_rows and columns c of [begin, end).
struct float_gemm_call {
    ggml_type             type;
    const char *          weights;
    size_t                stride;   // bytes, between rows of weights
    int64_t               k;        // a multiple of 16
    int64_t               begin, end;
    const float * const * x;
    float * const *       out;
    int64_t               n_rows;
};

using float_gemm_kernel = void (*)(const float_gemm_call & call);

}   // namespace dflash
