// The emulation of CUDA itself: thread indices, barriers, votes and shuffles of warps, and the errors that it detects.

#include "cuda/emulated_cuda.h"

#include "check.h"

#include <stdexcept>
#include <string>
#include <vector>

namespace {

using emulated_cuda::launch;
using emulated_cuda::turn_order;

constexpr int THREADS = 96;

// Every thread of every block, once, with its own indices.
__global__ void mark(int * seen) {
    const dim3 block = gridDim, thread = blockDim;
    const int  b = (blockIdx.z * block.y + blockIdx.y) * block.x + blockIdx.x;
    const int  t = (threadIdx.z * thread.y + threadIdx.y) * thread.x + threadIdx.x;
    seen[b * thread.x * thread.y * thread.z + t] += 1 + b * 1000 + t;
}

// Sums of neighbours through shared memory.
__global__ void add_next(const int * in, int * out, bool with_barrier) {
    int * shared        = (int *) emulated_cuda::shared_memory();
    shared[threadIdx.x] = in[threadIdx.x];
    if (with_barrier) {
        __syncthreads();
    }
    out[threadIdx.x] = shared[threadIdx.x] + shared[(threadIdx.x + 1) % blockDim.x];
}

// The sum of a block's values, by shuffles in each warp and shared memory between warps.
__global__ void add_all(const float * in, float * out) {
    __shared__ float of_warps[THREADS / emulated_cuda::WARP];
    float            sum = in[threadIdx.x];
    for (int by = emulated_cuda::WARP / 2; by; by /= 2) {
        sum += __shfl_xor_sync(~0u, sum, by);
    }
    of_warps[threadIdx.x / emulated_cuda::WARP] = sum;
    __syncthreads();
    out[threadIdx.x] = 0;
    for (const float x : of_warps) {
        out[threadIdx.x] += x;
    }
}

// Each line of `out` is the result of one function of the lane numbers.
__global__ void shuffle_lanes(int * out) {
    const int  i = (int) threadIdx.x, half = i / 16;
    const auto put = [&](int line, int value) { out[line * 32 + i] = value; };
    put(0, __shfl_sync(~0u, i, 5));
    put(1, __shfl_sync(~0u, i, 3, 8));
    put(2, __shfl_up_sync(~0u, i, 2));
    put(3, __shfl_down_sync(~0u, i, 3, 16));
    put(4, __shfl_xor_sync(~0u, i, 1));
    put(5, (int) __ballot_sync(~0u, i % 3 == 0));
    put(6, __any_sync(~0u, i == 31) + 2 * __all_sync(~0u, i < 31));
    // The halves of a warp take turns separately, one more often than the other.
    const uint32_t mask = half ? 0xffff0000u : 0x0000ffffu;
    int            sum  = i;
    for (int turn = 0; turn <= half; ++turn) {
        sum = __shfl_xor_sync(mask, sum, 1);
    }
    put(7, sum);
    __syncwarp();
    put(8, (int) (__shfl_sync(~0u, (double) i * 0.5, 9) * 2));
}

__global__ void ends_early(bool before) {
    if (before == (threadIdx.x < 7)) {
        return;
    }
    __syncthreads();
}

__global__ void two_barriers() {
    if (threadIdx.x % 2) {
        __syncthreads();
    } else {
        __syncthreads();
    }
}

__global__ void half_a_warp() {
    if (threadIdx.x < 16) {
        __syncwarp();
    }
}

__global__ void not_in_mask() { __syncwarp(1u); }

template <typename F> std::string error_of(const F & work) {
    try {
        work();
    } catch (const std::runtime_error & error) {
        return error.what();
    }
    return "";
}

void test_indices() {
    std::vector<int> seen(2 * 3 * 4 * 5 * 2);
    launch(mark, dim3(2, 3), dim3(4, 5, 2), 0, nullptr, seen.data());
    for (int i = 0; i < (int) seen.size(); ++i) {
        CHECK(seen[i] == 1 + i / 40 * 1000 + i % 40);
    }
}

void test_barrier() {
    std::vector<int> in(THREADS), want(THREADS), out(THREADS);
    for (int i = 0; i < THREADS; ++i) {
        in[i]   = i * i;
        want[i] = i * i + (i + 1) % THREADS * ((i + 1) % THREADS);
    }
    const auto run = [&](bool with_barrier) {
        launch(add_next, 1, THREADS, THREADS * sizeof(int), nullptr, in.data(), out.data(), with_barrier);
        return out == want;
    };
    CHECK(run(true));
    CHECK(!run(false));
}

void test_warps() {
    std::vector<float> in(THREADS), out(THREADS);
    for (int i = 0; i < THREADS; ++i) {
        in[i] = (float) i;   // 4560 in total
    }
    launch(add_all, 2, THREADS, 0, nullptr, in.data(), out.data());
    for (const float x : out) {
        CHECK(x == 4560);
    }
    std::vector<int> lanes(9 * 32);
    launch(shuffle_lanes, 1, 32, 0, nullptr, lanes.data());
    for (int i = 0; i < 32; ++i) {
        const int want[] = { 5, i / 8 * 8 + 3, i < 2 ? i : i - 2, i % 16 < 13 ? i + 3 : i, i ^ 1, 0x49249249, 1,
            i < 16 ? i ^ 1 : i, 9 };
        for (int line = 0; line < 9; ++line) {
            CHECK(lanes[line * 32 + i] == want[line]);
        }
    }
}

void test_refusals() {
    for (const bool before : { false, true }) {
        CHECK(error_of([&] { launch(ends_early, 1, THREADS, 0, nullptr, before); }).find("ended while others wait") !=
              std::string::npos);
    }
    CHECK(error_of([] { launch(two_barriers, 1, THREADS, 0, nullptr); }).find("the barriers in lines") !=
          std::string::npos);
    CHECK(error_of([] { launch(not_in_mask, 1, THREADS, 0, nullptr); }).find("its own mask") != std::string::npos);
    CHECK(error_of([] { launch(half_a_warp, 1, THREADS, 0, nullptr); }).find("none can go on") != std::string::npos);
    test_indices();   // and everything still works afterwards
}

}   // namespace

int main() {
    for (const turn_order order : { turn_order::ascending, turn_order::descending }) {
        emulated_cuda::order = order;
        test_indices();
        test_barrier();
        test_warps();
        test_refusals();
    }
    return TEST_RESULT;
}
