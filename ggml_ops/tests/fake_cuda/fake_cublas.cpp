// cuBLAS without a GPU: each product is a kernel of the fake runtime (fake_cuda.cpp) that computes nothing.

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

static cublasStatus_t launched(cudaStream_t stream) {
    cudaLaunchConfig_t config = {};
    config.stream             = stream;
    return cudaLaunchKernelExC(&config, nullptr, nullptr) ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}

extern "C" {

#define CUBLAS(name, stream, ...) \
    cublasStatus_t CUBLASWINAPI name(cublasHandle_t handle, __VA_ARGS__) { return launched(*(cudaStream_t *) handle); }

cublasStatus_t CUBLASWINAPI cublasCreate_v2(cublasHandle_t * handle) {
    *handle = (cublasHandle_t) new cudaStream_t();
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t CUBLASWINAPI cublasDestroy_v2(cublasHandle_t handle) {
    delete (cudaStream_t *) handle;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t CUBLASWINAPI cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
    *(cudaStream_t *) handle = stream;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t CUBLASWINAPI cublasSetMathMode(cublasHandle_t, cublasMath_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t CUBLASWINAPI cublasSetWorkspace_v2(cublasHandle_t, void *, size_t) { return CUBLAS_STATUS_SUCCESS; }
const char * CUBLASWINAPI   cublasGetStatusString(cublasStatus_t) { return "cuBLAS failed"; }

using operation = cublasOperation_t;
CUBLAS(cublasGemmEx, s, operation, operation, int, int, int, const void *, const void *, cudaDataType, int,
    const void *, cudaDataType, int, const void *, void *, cudaDataType, int, cublasComputeType_t, cublasGemmAlgo_t)
CUBLAS(cublasGemmBatchedEx, s, operation, operation, int, int, int, const void *, const void * const[], cudaDataType,
    int, const void * const[], cudaDataType, int, const void *, void * const[], cudaDataType, int, int,
    cublasComputeType_t, cublasGemmAlgo_t)
CUBLAS(cublasGemmStridedBatchedEx, s, operation, operation, int, int, int, const void *, const void *, cudaDataType,
    int, long long, const void *, cudaDataType, int, long long, const void *, void *, cudaDataType, int, long long, int,
    cublasComputeType_t, cublasGemmAlgo_t)
CUBLAS(cublasSgemm_v2, s, operation, operation, int, int, int, const float *, const float *, int, const float *, int,
    const float *, float *, int)
CUBLAS(cublasSgemmBatched, s, operation, operation, int, int, int, const float *, const float * const[], int,
    const float * const[], int, const float *, float * const[], int, int)
CUBLAS(cublasSgemmStridedBatched, s, operation, operation, int, int, int, const float *, const float *, int, long long,
    const float *, int, long long, const float *, float *, int, long long, int)
CUBLAS(cublasStrsmBatched, s, cublasSideMode_t, cublasFillMode_t, operation, cublasDiagType_t, int, int, const float *,
    const float * const[], int, float * const[], int, int)

}   // extern "C"
