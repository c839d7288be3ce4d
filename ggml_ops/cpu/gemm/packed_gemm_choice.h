// Chooses the kernel for a type of packed weights: the best instruction set, and AMX tiles for many rows. All kernels
// give the same bits, so only speed depends on it (docs/kernels.md).

#pragma once

#include "cpu/gemm/packed_gemm_call.h"
#include "ggml.h"

namespace dflash {

// The kernel for any number of rows, or null. The environment variable DFLASH_PANELS can restrict it to one variant.
packed_gemm_kernel choose_packed_gemm(ggml_type type);

// The smallest number of rows for which tiles are used, 0 if there is no choice.
int  packed_gemm_tile_rows(ggml_type type);
void set_packed_gemm_tile_rows(ggml_type type, int n_rows);

}   // namespace dflash
