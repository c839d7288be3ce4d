// Two kernels: each warp sorts out the k largest of PART values; then a block merges the lists of a row.
//
// A value and its index are one number: the float's bits so that they sort as unsigned integers, and below them the
// index, inverted. So the largest number is the largest value, and of equal values the first. A NaN is the smallest.

#pragma once

#include "common.cuh"

#include <cstdint>
#include <cstring>

constexpr int TOP_K_MOST    = 64;
constexpr int TOP_K_VALUES  = 16;                                            // of a lane
constexpr int TOP_K_PART    = 32 * TOP_K_VALUES;                             // of a warp
constexpr int TOP_K_WARPS   = 8;                                             // of a block
constexpr int TOP_K_LISTS   = 4;                                             // of a thread, at most
constexpr int TOP_K_COLUMNS = TOP_K_PART * TOP_K_LISTS * 32 * TOP_K_WARPS;   // of a row, at most

struct top_k_args {
    const float * values;   // [row][column]
    int           n_columns, n_parts, k;
    uint64_t *    lists;   // [row][part][k], in descending order
    int32_t *     out;     // [row][k]
};

static __device__ __forceinline__ uint64_t top_k_number(float value, uint32_t index) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint32_t order = bits ^ (bits >> 31 ? 0xffffffffu : 0x80000000u);
    return (uint64_t) (value == value ? order : 0) << 32 | (0xffffffffu - index);
}

static __device__ __forceinline__ uint64_t top_k_larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

static __device__ __forceinline__ uint64_t largest_of_warp(uint64_t number) {
#pragma unroll
    for (int by = 16; by; by /= 2) {
        number = top_k_larger(number, __shfl_xor_sync(~0u, number, by));
    }
    return number;
}

// A warp for each part (blocks: x) of a row (y).
static __global__ void __launch_bounds__(32 * TOP_K_WARPS) top_k_parts_kernel(const top_k_args args) {
    const int lane = threadIdx.x % 32, part = blockIdx.x * TOP_K_WARPS + threadIdx.x / 32, row = blockIdx.y;
    ggml_cuda_pdl_lc();
    ggml_cuda_pdl_sync();
    if (part >= args.n_parts) {
        return;
    }
    const float * const values = args.values + (int64_t) row * args.n_columns;
    uint64_t * const    list   = args.lists + ((int64_t) row * args.n_parts + part) * args.k;
    uint64_t            numbers[TOP_K_VALUES], best = 0;   // 0: less than any number
#pragma unroll
    for (int i = 0; i < TOP_K_VALUES; ++i) {
        const int column = part * TOP_K_PART + i * 32 + lane;
        numbers[i]       = column < args.n_columns ? top_k_number(values[column], column) : 0;
        best             = top_k_larger(best, numbers[i]);
    }
    for (int i = 0; i < args.k; ++i) {
        const uint64_t largest = largest_of_warp(best);
        if (lane == 0) {
            list[i] = largest;
        }
        if (largest == best && largest) {   // this lane's: the next of it
            best = 0;
#pragma unroll
            for (int j = 0; j < TOP_K_VALUES; ++j) {
                numbers[j] = numbers[j] == largest ? 0 : numbers[j];
                best       = top_k_larger(best, numbers[j]);
            }
        }
        __syncwarp();
    }
}

// A block for each row (y). A thread has every 256th list, of which it offers the largest that is left.
static __global__ void __launch_bounds__(32 * TOP_K_WARPS) top_k_merge_kernel(const top_k_args args) {
    __shared__ uint64_t    of_warps[2][TOP_K_WARPS];
    const int              warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = blockIdx.y;
    const uint64_t * const lists = args.lists + (int64_t) row * args.n_parts * args.k;
    uint64_t               heads[TOP_K_LISTS];
    int                    places[TOP_K_LISTS] = {};
    ggml_cuda_pdl_lc();
    ggml_cuda_pdl_sync();
#pragma unroll
    for (int i = 0; i < TOP_K_LISTS; ++i) {
        const int part = i * 32 * TOP_K_WARPS + threadIdx.x;
        heads[i]       = part < args.n_parts ? lists[(int64_t) part * args.k] : 0;
    }
    for (int n = 0; n < args.k; ++n) {
        uint64_t best = heads[0];
#pragma unroll
        for (int i = 1; i < TOP_K_LISTS; ++i) {
            best = top_k_larger(best, heads[i]);
        }
        best = largest_of_warp(best);
        if (lane == 0) {
            of_warps[n % 2][warp] = best;   // the other half may still be read
        }
        __syncthreads();
        best = largest_of_warp(of_warps[n % 2][lane % TOP_K_WARPS]);
        if (threadIdx.x == 0) {
            args.out[(int64_t) row * args.k + n] = (int32_t) (0xffffffffu - (uint32_t) best);
        }
#pragma unroll
        for (int i = 0; i < TOP_K_LISTS; ++i) {
            if (heads[i] == best && best) {
                const int part = i * 32 * TOP_K_WARPS + threadIdx.x;
                heads[i]       = ++places[i] < args.k ? lists[(int64_t) part * args.k + places[i]] : 0;
            }
        }
    }
}
