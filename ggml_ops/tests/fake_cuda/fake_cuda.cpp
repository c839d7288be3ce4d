// A CUDA runtime without a GPU: what ggml's CUDA backend calls. Kernels compute nothing, and device memory is only
// addresses: whatever is copied from it is zero. So the host's side of the backend runs as it is, with models of any
// size: what it allocates, captures, launches, copies and waits for, and what it does when a call fails.
//
// Built as libcudart (build.sh), beside fake_cublas.cpp, and found through LD_LIBRARY_PATH. Environment:
//
//   FAKE_CUDA_KERNEL_US   microseconds of a kernel: whoever waits for a stream waits for its kernels (0)
//   FAKE_CUDA_FAIL        NAME:N fails the N-th call of a function, from 1 on: cudaMalloc:3
//   FAKE_CUDA_LOG         a file that gets a line for each kernel as it is launched or captured, and for each launch of
//                         a graph
//   FAKE_CUDA_CC          compute capability (90)
//   FAKE_CUDA_DEVICES     how many (1)

#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <thread>

namespace {

using clock_type = std::chrono::steady_clock;

thread_local int current_device = 0;

constexpr int DEFAULT_SHARED = 48 << 10, MOST_SHARED = 227 << 10;   // of sm_90

std::string setting(const char * name, const char * otherwise) {
    const char * value = std::getenv(name);
    return value ? value : otherwise;
}

struct stream {
    clock_type::time_point free;   // when its work is done
    bool                   captures   = false;
    int                    n_captured = 0;
    int                    device     = 0;
};

struct graph {
    int n_kernels;
};

struct runtime {
    std::mutex                          lock;
    std::map<const void *, std::string> kernels;   // by the host's function
    std::map<std::string, int>          calls;
    std::map<const void *, int>         shared;     // bytes that kernels may have, if not DEFAULT_SHARED
    std::map<void *, size_t>            reserved;   // device memory
    stream                              main;       // the stream null
    std::string                         failing      = setting("FAKE_CUDA_FAIL", "");
    int                                 failing_call = 0;
    const int                           kernel_us    = std::atoi(setting("FAKE_CUDA_KERNEL_US", "0").c_str());
    const int                           cc           = std::atoi(setting("FAKE_CUDA_CC", "90").c_str());
    const int                           n_devices    = std::atoi(setting("FAKE_CUDA_DEVICES", "1").c_str());
    std::FILE *                         log          = nullptr;
    cudaError_t                         last         = cudaSuccess;

    runtime() {
        if (const size_t colon = failing.find(':'); colon != std::string::npos) {
            failing_call = std::atoi(failing.c_str() + colon + 1);
            failing.resize(colon);
        }
        if (const std::string file = setting("FAKE_CUDA_LOG", ""); !file.empty()) {
            log = std::fopen(file.c_str(), "w");
            if (log) {
                std::setvbuf(log, nullptr, _IOLBF, 1 << 12);   // whoever reads it meanwhile finds what was done
            }
        }
    }
};

runtime & here() {
    static runtime * all = new runtime;   // libraries unregister their kernels at exit
    return *all;
}

// Each function of the runtime begins with this: an error if it is the call that fails.
cudaError_t call(const char * name, cudaError_t error = cudaErrorMemoryAllocation) {
    runtime &                         r = here();
    const std::lock_guard<std::mutex> guard(r.lock);
    if (++r.calls[name] == r.failing_call && r.failing == name) {
        return r.last = error;
    }
    return cudaSuccess;
}

// The first two are names: of the legacy stream and a thread's own.
stream & stream_of(cudaStream_t s) { return (uintptr_t) s > 2 ? *(stream *) s : here().main; }

void add_work(stream & s, int n_kernels) {
    const auto now = clock_type::now();
    s.free         = std::max(s.free, now) + std::chrono::microseconds((int64_t) n_kernels * here().kernel_us);
}

void wait(stream & s) { std::this_thread::sleep_until(s.free); }

cudaError_t launched(const void * kernel, cudaStream_t at, dim3 grid, dim3 block, size_t shared) {
    runtime &                         r = here();
    const std::lock_guard<std::mutex> guard(r.lock);
    stream &                          s    = stream_of(at);
    const auto                        most = r.shared.find(kernel);
    if (shared > (size_t) (most == r.shared.end() ? DEFAULT_SHARED : most->second) ||
        block.x * block.y * block.z > 1024 || grid.y > 65535 || grid.z > 65535) {
        return r.last = cudaErrorInvalidValue;
    }
    if (r.log) {
        std::fprintf(r.log, "%s on %d: %s grid %u,%u,%u block %u shared %zu\n", s.captures ? "captured" : "launched",
            s.device, r.kernels[kernel].c_str(), grid.x, grid.y, grid.z, block.x * block.y * block.z, shared);
    }
    if (s.captures) {
        ++s.n_captured;
    } else {
        add_work(s, 1);
    }
    return cudaSuccess;
}

// Addresses that nobody can read or write.
cudaError_t reserve(void ** memory, size_t bytes) {
    if (const cudaError_t error = call("cudaMalloc")) {
        return error;
    }
    *memory = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (*memory == MAP_FAILED) {
        return here().last = cudaErrorMemoryAllocation;
    }
    const std::lock_guard<std::mutex> guard(here().lock);
    here().reserved[*memory] = bytes;
    if (here().log) {
        std::fprintf(here().log, "allocated on %d: %zu\n", current_device, bytes);
    }
    return cudaSuccess;
}

cudaError_t allocate_host(void ** memory, size_t bytes) {
    if (const cudaError_t error = call("cudaMallocHost")) {
        return error;
    }
    *memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    if (!*memory) {
        return here().last = cudaErrorMemoryAllocation;
    }
    std::memset(*memory, 0, bytes);
    return cudaSuccess;
}

}   // namespace

#define CALL(name)                                \
    if (const cudaError_t error_ = call(#name)) { \
        return error_;                            \
    }

extern "C" {

// ---- kernels

void ** CUDARTAPI __cudaRegisterFatBinary(void * binary) { return new void *(binary); }
void CUDARTAPI    __cudaRegisterFatBinaryEnd(void **) {}
void CUDARTAPI    __cudaUnregisterFatBinary(void **) {}
void CUDARTAPI    __cudaRegisterVar(void **, char *, char *, const char *, int, size_t, int, int) {}
void CUDARTAPI    __cudaRegisterFunction(
       void **, const char * host, char *, const char * name, int, uint3 *, uint3 *, dim3 *, dim3 *, int *) {
    const std::lock_guard<std::mutex> guard(here().lock);
    here().kernels[host] = name;
}

struct launch_configuration {
    dim3         grid, block;
    size_t       shared;
    cudaStream_t stream;
};
static thread_local launch_configuration configuration;

unsigned CUDARTAPI __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
    configuration = { grid, block, shared, stream };
    return 0;
}
cudaError_t CUDARTAPI __cudaPopCallConfiguration(dim3 * grid, dim3 * block, size_t * shared, void * stream) {
    *grid   = configuration.grid;
    *block  = configuration.block;
    *shared = configuration.shared;
    std::memcpy(stream, &configuration.stream, sizeof configuration.stream);
    return cudaSuccess;
}
cudaError_t CUDARTAPI __cudaGetKernel(cudaKernel_t * kernel, const void * host) {
    *kernel = (cudaKernel_t) host;
    return cudaSuccess;
}
cudaError_t CUDARTAPI __cudaLaunchKernel(
    cudaKernel_t kernel, dim3 grid, dim3 block, void **, size_t shared, cudaStream_t stream) {
    CALL(cudaLaunchKernel)
    return launched((const void *) kernel, stream, grid, block, shared);
}
cudaError_t CUDARTAPI cudaLaunchKernelExC(const cudaLaunchConfig_t * config, const void * kernel, void **) {
    CALL(cudaLaunchKernel)
    return launched(kernel, config->stream, config->gridDim, config->blockDim, config->dynamicSmemBytes);
}
cudaError_t CUDARTAPI cudaLaunchCooperativeKernel(
    const void * kernel, dim3 grid, dim3 block, void **, size_t shared, cudaStream_t stream) {
    CALL(cudaLaunchKernel)
    return launched(kernel, stream, grid, block, shared);
}
cudaError_t CUDARTAPI cudaFuncGetAttributes(cudaFuncAttributes * attributes, const void *) {
    *attributes                    = {};
    attributes->maxThreadsPerBlock = 1024;
    attributes->numRegs            = 64;
    attributes->ptxVersion = attributes->binaryVersion = here().cc;
    return cudaSuccess;
}
cudaError_t CUDARTAPI cudaFuncSetAttribute(const void * kernel, cudaFuncAttribute attribute, int value) {
    if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize) {
        if (value > MOST_SHARED) {
            return here().last = cudaErrorInvalidValue;
        }
        const std::lock_guard<std::mutex> guard(here().lock);
        here().shared[kernel] = value;
    }
    return cudaSuccess;
}
cudaError_t CUDARTAPI cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int * n, const void *, int, size_t, unsigned) {
    *n = 2;
    return cudaSuccess;
}

// ---- devices

cudaError_t CUDARTAPI cudaGetDeviceCount(int * n) {
    *n = here().n_devices;
    return cudaSuccess;
}
cudaError_t CUDARTAPI cudaGetDevice(int * device) {
    *device = current_device;
    return cudaSuccess;
}
cudaError_t CUDARTAPI cudaSetDevice(int device) {
    current_device = device;
    return device >= 0 && device < here().n_devices ? cudaSuccess : cudaErrorInvalidDevice;
}
cudaError_t CUDARTAPI cudaSetDeviceFlags(unsigned) { return cudaSuccess; }
cudaError_t CUDARTAPI cudaGetDeviceProperties(cudaDeviceProp * p, int) {
    *p = {};
    std::snprintf(p->name, sizeof p->name, "no GPU (fake)");
    p->major                       = here().cc / 10;
    p->minor                       = here().cc % 10;
    p->totalGlobalMem              = (size_t) 24 << 30;
    p->multiProcessorCount         = 132;
    p->warpSize                    = 32;
    p->sharedMemPerBlock           = DEFAULT_SHARED;
    p->sharedMemPerBlockOptin      = MOST_SHARED;
    p->sharedMemPerMultiprocessor  = 228 << 10;
    p->regsPerBlock                = 65536;
    p->maxThreadsPerBlock          = 1024;
    p->maxThreadsPerMultiProcessor = 2048;
    p->l2CacheSize                 = 50 << 20;
    return cudaSuccess;
}
cudaError_t CUDARTAPI cudaDeviceGetAttribute(int * value, cudaDeviceAttr attribute, int) {
    *value = attribute == cudaDevAttrCooperativeLaunch ? 1 : 0;
    return cudaSuccess;
}
cudaError_t CUDARTAPI cudaDeviceGetPCIBusId(char * id, int n, int device) {
    std::snprintf(id, n, "0000:%02x:00.0", (unsigned) device);
    return cudaSuccess;
}
cudaError_t CUDARTAPI cudaDeviceCanAccessPeer(int * can, int, int) {
    *can = 0;
    return cudaSuccess;
}
cudaError_t CUDARTAPI cudaDeviceEnablePeerAccess(int, unsigned) { return cudaSuccess; }
cudaError_t CUDARTAPI cudaDeviceSynchronize() {
    CALL(cudaDeviceSynchronize)
    wait(here().main);
    return cudaSuccess;
}
const char * CUDARTAPI cudaGetErrorString(cudaError_t error) {
    return error == cudaErrorMemoryAllocation ? "out of memory" : error ? "unspecified launch failure" : "no error";
}
cudaError_t CUDARTAPI cudaGetLastError() {
    const cudaError_t error = here().last;
    here().last             = cudaSuccess;
    return error;
}
cudaError_t CUDARTAPI cudaPeekAtLastError() { return here().last; }

// ---- memory

cudaError_t CUDARTAPI cudaMalloc(void ** memory, size_t bytes) { return reserve(memory, bytes); }
cudaError_t CUDARTAPI cudaMallocManaged(void ** memory, size_t bytes, unsigned) { return reserve(memory, bytes); }
cudaError_t CUDARTAPI cudaFree(void * memory) {
    const std::lock_guard<std::mutex> guard(here().lock);
    if (const auto found = here().reserved.find(memory); found != here().reserved.end()) {
        munmap(memory, found->second);
        here().reserved.erase(found);
    }
    return cudaSuccess;
}
cudaError_t CUDARTAPI cudaMallocHost(void ** memory, size_t bytes) { return allocate_host(memory, bytes); }
cudaError_t CUDARTAPI cudaHostAlloc(void ** memory, size_t bytes, unsigned) { return allocate_host(memory, bytes); }
cudaError_t CUDARTAPI cudaFreeHost(void * memory) {
    std::free(memory);
    return cudaSuccess;
}
cudaError_t CUDARTAPI cudaHostRegister(void *, size_t, unsigned) { return cudaErrorNotSupported; }
cudaError_t CUDARTAPI cudaHostUnregister(void *) { return cudaSuccess; }
cudaError_t CUDARTAPI cudaHostGetDevicePointer(void ** device, void * host, unsigned) {
    *device = host;
    return cudaSuccess;
}
cudaError_t CUDARTAPI cudaMemGetInfo(size_t * free, size_t * total) {
    *total = (size_t) 24 << 30;
    *free  = (size_t) 23 << 30;
    return cudaSuccess;
}
cudaError_t CUDARTAPI cudaMemcpyAsync(void * to, const void *, size_t bytes, cudaMemcpyKind kind, cudaStream_t s) {
    CALL(cudaMemcpyAsync)
    if (!stream_of(s).captures && kind == cudaMemcpyDeviceToHost) {
        wait(stream_of(s));
        std::memset(to, 0, bytes);
    }
    return cudaSuccess;
}
cudaError_t CUDARTAPI cudaMemcpyPeerAsync(void * to, int, const void * from, int, size_t bytes, cudaStream_t s) {
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, s);
}
cudaError_t CUDARTAPI cudaMemcpy2DAsync(void * to, size_t to_row, const void * from, size_t, size_t width,
    size_t height, cudaMemcpyKind kind, cudaStream_t s) {
    for (size_t i = 0; i < height; ++i) {
        if (const cudaError_t error = cudaMemcpyAsync((char *) to + i * to_row, from, width, kind, s)) {
            return error;
        }
    }
    return cudaSuccess;
}
cudaError_t CUDARTAPI cudaMemset(void *, int, size_t) { return cudaSuccess; }
cudaError_t CUDARTAPI cudaMemsetAsync(void *, int, size_t, cudaStream_t) { return cudaSuccess; }

// ---- streams, events, graphs

cudaError_t CUDARTAPI cudaStreamCreateWithFlags(cudaStream_t * s, unsigned) {
    CALL(cudaStreamCreateWithFlags)
    stream * made = new stream;
    made->device  = current_device;
    *s            = (cudaStream_t) made;
    return cudaSuccess;
}
cudaError_t CUDARTAPI cudaStreamDestroy(cudaStream_t s) {
    delete (stream *) s;
    return cudaSuccess;
}
cudaError_t CUDARTAPI cudaStreamSynchronize(cudaStream_t s) {
    CALL(cudaStreamSynchronize)
    wait(stream_of(s));
    return cudaSuccess;
}
cudaError_t CUDARTAPI cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
cudaError_t CUDARTAPI cudaStreamIsCapturing(cudaStream_t s, cudaStreamCaptureStatus * status) {
    *status = stream_of(s).captures ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}
cudaError_t CUDARTAPI cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode) {
    CALL(cudaStreamBeginCapture)
    stream_of(s).captures   = true;
    stream_of(s).n_captured = 0;
    return cudaSuccess;
}
cudaError_t CUDARTAPI cudaStreamEndCapture(cudaStream_t s, cudaGraph_t * g) {
    stream_of(s).captures = false;
    CALL(cudaStreamEndCapture)
    *g = (cudaGraph_t) new graph{ stream_of(s).n_captured };
    return cudaSuccess;
}
cudaError_t CUDARTAPI cudaGraphInstantiate(cudaGraphExec_t * e, cudaGraph_t g, unsigned long long) {
    CALL(cudaGraphInstantiate)
    *e = (cudaGraphExec_t) new graph(*(graph *) g);
    return cudaSuccess;
}
cudaError_t CUDARTAPI cudaGraphExecUpdate(cudaGraphExec_t e, cudaGraph_t g, cudaGraphExecUpdateResultInfo *) {
    CALL(cudaGraphExecUpdate)
    *(graph *) e = *(graph *) g;
    return cudaSuccess;
}
cudaError_t CUDARTAPI cudaGraphLaunch(cudaGraphExec_t e, cudaStream_t s) {
    CALL(cudaGraphLaunch)
    const std::lock_guard<std::mutex> guard(here().lock);
    if (here().log) {
        std::fprintf(here().log, "graph of %d kernels\n", ((graph *) e)->n_kernels);
    }
    add_work(stream_of(s), ((graph *) e)->n_kernels);
    return cudaSuccess;
}
cudaError_t CUDARTAPI cudaGraphDestroy(cudaGraph_t g) {
    delete (graph *) g;
    return cudaSuccess;
}
cudaError_t CUDARTAPI cudaGraphExecDestroy(cudaGraphExec_t e) {
    delete (graph *) e;
    return cudaSuccess;
}
cudaError_t CUDARTAPI cudaEventCreateWithFlags(cudaEvent_t * e, unsigned) {
    CALL(cudaEventCreateWithFlags)
    *e = (cudaEvent_t) new stream;   // an event is where a stream is
    return cudaSuccess;
}
cudaError_t CUDARTAPI cudaEventDestroy(cudaEvent_t e) {
    delete (stream *) e;
    return cudaSuccess;
}
cudaError_t CUDARTAPI cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
    ((stream *) e)->free = stream_of(s).free;
    return cudaSuccess;
}
cudaError_t CUDARTAPI cudaEventSynchronize(cudaEvent_t e) {
    wait(*(stream *) e);
    return cudaSuccess;
}

}   // extern "C"
