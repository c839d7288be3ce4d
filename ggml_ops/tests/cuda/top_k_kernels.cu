// The kernels of top_k/cuda, for compilers of GPU code that are tested without a GPU (tests/ggml_ops).

#include "top_k/cuda/top_k_kernels.cuh"

const void * const KERNELS[] = { (const void *) top_k_parts_kernel, (const void *) top_k_merge_kernel };
