// Stands in for ggml-cuda's common.cuh, as far as gdn/cuda uses it: in the emulation, and where a compiler for GPUs is
// at hand but not the libraries that ggml-cuda's own header asks for (cuBLAS, hipBLAS).

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

struct ggml_backend_cuda_context {
    cudaStream_t stream() { return nullptr; }
};
