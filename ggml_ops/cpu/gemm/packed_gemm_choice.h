// Which kernel serves a type of packed weights: of the best instruction set, and tiles (AMX) for many rows. All kernels
// give the same bits, so that this is a matter of speed alone (docs/kernels.md).

#pragma once

#include "cpu/gemm/packed_gemm.h"

namespace dflash {

// One kernel for any number of rows, null if there is none. The environment variable DFLASH_PANELS may name the only
// variant to use.
packed_gemm_kernel choose_packed_gemm(ggml_type type);

// From how many rows on tiles serve a type, 0 where there is no choice.
int  packed_gemm_tile_rows(ggml_type type);
void set_packed_gemm_tile_rows(ggml_type type, int n_rows);

}   // namespace dflash
