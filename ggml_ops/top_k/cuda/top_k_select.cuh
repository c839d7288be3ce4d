// The k largest values of rows on CUDA devices. Hooked into ggml's TOP_K by patches/0033.

#pragma once

#include "common.cuh"

// Computes dst, the indices of the largest values in descending order (of equal ones the first), unless there are too
// many of them or of columns: then false.
bool dflash_cuda_top_k(ggml_backend_cuda_context & ctx, ggml_tensor * dst);
