// The CUDA and HIP backends' side of the delta-net tree ops (gdn_tree.h). Hooked in by patches/0006.

#pragma once

#include "common.cuh"
#include "gdn/gdn_tree.h"

void dflash_cuda_gdn_tree(ggml_backend_cuda_context & ctx, ggml_tensor * op);
void dflash_cuda_gdn_commit(ggml_backend_cuda_context & ctx, ggml_tensor * op);
