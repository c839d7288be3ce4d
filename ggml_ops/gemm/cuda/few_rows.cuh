// Products of quantized weights with 1 to 64 rows on CUDA devices with tensor cores for halves (sm_80 and up). Hooked
// into ggml's CUDA backend by patches/0032.

#pragma once

#include "common.cuh"

// From how many rows on (up to 64) the kernels serve a type; 65: never, which is the default. Sets it if rows > 0,
// restores the default if rows is 0, only asks if rows < 0. Returns what is in force; 0: not on this device, or not for
// this type.
int dflash_cuda_set_few_rows(int device, ggml_type type, int rows);

// Whether the kernels compute this product: dst is a MUL_MAT of a graph on `device`.
bool dflash_cuda_has_mul_mat(int device, const ggml_tensor * dst);

// Computes it.
void dflash_cuda_mul_mat(ggml_backend_cuda_context & ctx, ggml_tensor * dst);

// Called for each node that a graph computes, in order. Computes it and the n that follow as one, and returns n; 0:
// nothing was done. These are: a norm whose result such products read, a product and what is added to it, the gated
// products of a feed-forward. Rows that several products read are laid out once.
int dflash_cuda_fuse(ggml_backend_cuda_context & ctx, const ggml_cgraph * graph, int i);

// A backend's context ends.
void dflash_cuda_forget(const ggml_backend_cuda_context & ctx);
