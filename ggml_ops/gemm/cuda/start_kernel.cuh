#pragma once

#include "common.cuh"

#if defined(__CUDACC__)

// The kernel may start while the one before it ends (sm_90), and the blocks that share a column may form a cluster.
template <typename Kernel, typename Args>
static void start_kernel(
    Kernel kernel, dim3 grid, int threads, size_t shared, cudaStream_t stream, int cluster, const Args & args) {
    cudaLaunchConfig_t  config        = {};
    cudaLaunchAttribute attributes[2] = {};
    config.gridDim                    = grid;
    config.blockDim                   = dim3(threads);
    config.dynamicSmemBytes           = shared;
    config.stream                     = stream;
    config.attrs                      = attributes;
    if (shared > 48 << 10) {
        CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int) shared));
    }
#ifdef GGML_CUDA_USE_PDL
    static const char * const chosen = getenv("GGML_CUDA_PDL");
    if ((!chosen || std::atoi(chosen)) && ggml_cuda_kernel_can_use_pdl((const void *) kernel)) {
        cudaLaunchAttribute & early                      = attributes[config.numAttrs++];
        early.id                                         = cudaLaunchAttributeProgrammaticStreamSerialization;
        early.val.programmaticStreamSerializationAllowed = 1;
    }
#endif
    if (cluster > 1) {
        cudaLaunchAttribute & blocks = attributes[config.numAttrs++];
        blocks.id                    = cudaLaunchAttributeClusterDimension;
        blocks.val.clusterDim.x      = 1;
        blocks.val.clusterDim.y      = cluster;
        blocks.val.clusterDim.z      = 1;
    }
    CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, args));
}

#else
#include "cuda/emulated_backend.h"
#endif
