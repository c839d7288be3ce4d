// CUDA on the CPU, for tests: the parts of the language that the kernels of gdn/cuda use, on fibers. No GPU is
// involved.
//
// A launch runs one block after another. A thread of a block is a fiber that runs alone until it has to wait: at a
// barrier, or for the lanes of its warp. Threads take turns in `turn_order`. A value read without the necessary barrier
// is always stale in one of the two orders or overwritten in the other, so a test that compares results in both orders
// fails. Shared memory is on the heap with exactly the launch's size, so that AddressSanitizer knows its end, and
// initially contains NaN and -1.
//
// CMakeLists.txt rewrites `kernel<<<grid, block, shared, stream>>>(` and `extern __shared__` into calls of these
// functions.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <tuple>
#include <type_traits>

// NOLINTBEGIN(bugprone-reserved-identifier): CUDA's names
#define __global__
#define __host__
#define __device__
#define __forceinline__ inline
#define __shared__      static
#define __launch_bounds__(...)

struct uint3 {
    uint32_t x, y, z;
};

struct dim3 {
    uint32_t x, y, z;
    dim3(uint32_t x = 1, uint32_t y = 1, uint32_t z = 1) : x(x), y(y), z(z) {}
};

// Of the current thread.
extern uint3 threadIdx, blockIdx;
extern dim3  blockDim, gridDim;

using cudaStream_t = void *;
using cudaError_t  = int;
static inline cudaError_t cudaGetLastError() { return 0; }   // NOLINT(readability-identifier-naming): CUDA's name

namespace emulated_cuda {

constexpr int WARP = 32;

enum class turn_order { ascending, descending };
extern turn_order order;

// Source lines of the barriers that launches have met, and a fault for tests: the barrier in this line does nothing.
extern std::set<int> barrier_lines;
extern int           missing_line;

// Throws std::runtime_error if a GPU would hang or its behaviour is undefined: if a block's threads wait at different
// barriers, or have ended while others wait for them; also for a warp's lanes.
void run_grid(dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()> & thread);

void * shared_memory();               // of the current block
void   block_barrier(int line);       // line: the barrier's source line
void   warp_barrier(uint32_t mask);   // for the lanes in mask

// Each lane in mask gives 8 bytes; it may then read what the others gave, until its next exchange.
const uint64_t * warp_exchange(uint32_t mask, uint64_t given);
int              lane();

// NOLINTBEGIN(performance-unnecessary-value-param): a launch copies its arguments
template <typename... P, typename... A>
void launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t, A... args) {
    const std::tuple<P...> all(args...);
    run_grid(grid, block, shared_bytes, [&] { std::apply(kernel, all); });
}
// NOLINTEND(performance-unnecessary-value-param)

template <typename T> uint64_t to_bits(T value) {
    static_assert(sizeof(T) <= 8 && std::is_trivially_copyable<T>::value, "shuffles move 4 or 8 bytes");
    uint64_t bits = 0;
    __builtin_memcpy(&bits, &value, sizeof value);
    return bits;
}

template <typename T> T from_bits(uint64_t bits) {
    T value;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}

// A lane outside [first, end) or the mask gives nothing: the caller's own value is kept.
template <typename T> T shuffle(uint32_t mask, T value, int from, int first, int end) {
    const uint64_t * given = warp_exchange(mask, to_bits(value));
    return from >= first && from < end && mask >> from & 1 ? from_bits<T>(given[from]) : value;
}

inline int first_lane(int width) { return lane() / width * width; }

}   // namespace emulated_cuda

#define __syncthreads() emulated_cuda::block_barrier(__LINE__)

// CUDA's names and semantics: CUDA C++ Programming Guide, "Warp Vote Functions" and "Warp Shuffle Functions".
static inline void __syncwarp(uint32_t mask = ~0u) { emulated_cuda::warp_barrier(mask); }

template <typename T> T __shfl_sync(uint32_t mask, T value, int from, int width = emulated_cuda::WARP) {
    const int first = emulated_cuda::first_lane(width);
    return emulated_cuda::shuffle(mask, value, first + from % width, first, first + width);
}
template <typename T> T __shfl_up_sync(uint32_t mask, T value, int by, int width = emulated_cuda::WARP) {
    const int first = emulated_cuda::first_lane(width);
    return emulated_cuda::shuffle(mask, value, emulated_cuda::lane() - by, first, first + width);
}
template <typename T> T __shfl_down_sync(uint32_t mask, T value, int by, int width = emulated_cuda::WARP) {
    const int first = emulated_cuda::first_lane(width);
    return emulated_cuda::shuffle(mask, value, emulated_cuda::lane() + by, first, first + width);
}
template <typename T> T __shfl_xor_sync(uint32_t mask, T value, int by, int width = emulated_cuda::WARP) {
    const int first = emulated_cuda::first_lane(width);
    return emulated_cuda::shuffle(mask, value, emulated_cuda::lane() ^ by, 0, first + width);
}
static inline uint32_t __ballot_sync(uint32_t mask, int predicate) {
    const uint64_t * given = emulated_cuda::warp_exchange(mask, predicate != 0);
    uint32_t         votes = 0;
    for (int i = 0; i < emulated_cuda::WARP; ++i) {
        votes |= mask >> i & 1 && given[i] ? 1u << i : 0u;
    }
    return votes;
}
static inline int __any_sync(uint32_t mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
static inline int __all_sync(uint32_t mask, int predicate) { return __ballot_sync(mask, predicate) == mask; }
// NOLINTEND(bugprone-reserved-identifier)
