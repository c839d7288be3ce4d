// One call of a packed GEMM kernel: what packed_gemm.cpp asks of each instruction set (packed_gemm_kernels.h,
// packed_gemm_amx.h).

#pragma once

#include <cstddef>
#include <cstdint>

namespace dflash {

// How far ahead kernels prefetch weights (bytes): the hardware prefetcher is too late.
constexpr int PREFETCH_AHEAD = 8192;

// Rows of a pass that are multiplied with a panel before the next one is read.
constexpr int MAX_GEMM_ROWS = 64;

// out[r][16 * p + c] for panels p below n_panels and rows r below n_rows.
struct packed_gemm_call {
    const void * panels;   // each of n_blocks
    int64_t      n_blocks, n_panels;
    const void * rows;         // quantized
    size_t       row_stride;   // bytes, quantized_row_size()
    int          n_rows;
    float *      out;
    size_t       out_stride;   // floats
};

// A result depends only on its row and column: the operations are the same whatever else is computed in the call.
using packed_gemm_kernel = void (*)(const packed_gemm_call & call);

}   // namespace dflash
