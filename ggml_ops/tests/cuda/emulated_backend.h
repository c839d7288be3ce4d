// What gemm/cuda uses of ggml's CUDA backend, on the host's memory: one device, one stream.

#pragma once

#include "cuda/emulated_mma.h"

#include <cstdlib>
#include <map>
#include <vector>

constexpr int GGML_CUDA_MAX_DEVICES = 1, GGML_CUDA_CC_AMPERE = 800, GGML_CUDA_CC_HOPPER = 900;
#define GGML_CUDA_CC_IS_NVIDIA(cc) ((cc) > 0)

struct emulated_device {
    int cc = 860, nsm = 4;   // no clusters, which the emulation has not; few multiprocessors, so that k is split little
    size_t smpbo = 99 << 10;
};
struct emulated_devices {
    int             device_count = 1;
    emulated_device devices[GGML_CUDA_MAX_DEVICES];
};
inline const emulated_devices & ggml_cuda_info() {
    static const emulated_devices all;
    return all;
}
inline int  ggml_cuda_highest_compiled_arch(int cc) { return cc; }
inline void ggml_cuda_set_device(int) {}

// NOLINTBEGIN(readability-identifier-naming): CUDA's names
inline cudaError_t cudaMalloc(void ** memory, size_t bytes) {
    *memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    std::memset(*memory, 0xff, bytes);
    return 0;
}
inline cudaError_t cudaFree(void * memory) {
    std::free(memory);
    return 0;
}

// Another stream than the context's, which does not wait for it: what is set here is set once somebody waits for it.
// There is no cudaMemset(): nobody would wait for its stream.
inline const cudaStream_t cudaStreamPerThread = (cudaStream_t) 2;
struct emulated_set {
    void * memory;
    int    value;
    size_t bytes;
};
inline std::vector<emulated_set> emulated_sets;   // those not waited for
inline cudaError_t               cudaMemsetAsync(void * memory, int value, size_t bytes, cudaStream_t stream) {
    if (stream == cudaStreamPerThread) {
        emulated_sets.push_back({ memory, value, bytes });
    } else {
        std::memset(memory, value, bytes);
    }
    return 0;
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t) {
    for (const emulated_set & set : emulated_sets) {
        std::memset(set.memory, set.value, set.bytes);
    }
    emulated_sets.clear();
    return 0;
}
// NOLINTEND(readability-identifier-naming)

struct ggml_cuda_pool {};
template <typename T> class ggml_cuda_pool_alloc {
  public:
    explicit ggml_cuda_pool_alloc(ggml_cuda_pool &) {}
    T * alloc(size_t n) {
        memory_.assign(n + 16, (T) -1);
        return (T *) (((uintptr_t) memory_.data() + 15) / 16 * 16);
    }

  private:
    std::vector<T> memory_;
};

struct emulated_streams {
    std::map<const void *, int> concurrent_events;
};
struct ggml_backend_cuda_context {
    int device = 0, curr_stream_no = 0;

    cudaStream_t       stream() { return nullptr; }
    ggml_cuda_pool &   pool() { return pool_; }
    emulated_streams & stream_context() { return streams_; }

  private:
    ggml_cuda_pool   pool_;
    emulated_streams streams_;
};

extern int emulated_launches;   // of kernels that gemm/cuda has started
template <typename Kernel, typename Args>
void start_kernel(Kernel kernel, dim3 grid, int threads, size_t shared, cudaStream_t stream, int, const Args & args) {
    ++emulated_launches;
    emulated_cuda::launch(kernel, grid, dim3(threads), shared, stream, args);
}
