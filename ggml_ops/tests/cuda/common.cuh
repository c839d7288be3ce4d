// Replaces ggml-cuda's common.cuh for gdn/cuda and gemm/cuda: in the emulation, and if there is a GPU compiler without
// the libraries that ggml-cuda's own header needs (cuBLAS, hipBLAS).

#pragma once

#include "ggml.h"

#if defined(__HIP__)
#include <hip/hip_runtime.h>
using cudaStream_t = hipStream_t;
#define cudaGetLastError hipGetLastError   // NOLINT(readability-identifier-naming): as ggml-cuda/vendors/hip.h
#elif !defined(__CUDACC__)
#include "cuda/emulated_cuda.h"
#endif

#define CUDA_CHECK(call) ((void) (call))

// Kernels may start before the one ahead of them has ended; here they do not.
static __device__ __forceinline__ void ggml_cuda_pdl_sync() {}
static __device__ __forceinline__ void ggml_cuda_pdl_lc() {}

#if defined(__CUDACC__) || defined(__HIP__)
struct ggml_backend_cuda_context {
    cudaStream_t stream() { return nullptr; }
};
#else
#include "cuda/emulated_backend.h"
#endif
