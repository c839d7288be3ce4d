// The rows of the pass as operands of tensor cores.
//
// A *tile* is 8 rows by a chunk of 256 values as halves: for each of the eight groups 16 bytes for each lane, in the
// order in which the weights are unpacked (weights.cuh), so a warp reads 512 bytes in a row. Behind them the sums of
// the lane's two sub-blocks of 32 values, which multiply the weights' mins. Rows past the last one are zero.
//
// Values are multiplied by ROW_SCALE: halves end at 65504, and some models' hidden states do not. Beyond
// 65504 / ROW_SCALE they are cut off.

#pragma once

#include "gemm/cuda/weights.cuh"

constexpr float ROW_SCALE    = 0.0625f;
constexpr float SUM_SCALE    = 1.0f / MIN_SCALE;
constexpr int   TILE_ROWS    = 8;
constexpr int   TILE_SUMS    = 8 * 32 * 16;   // bytes before the sums
constexpr int   TILE_BYTES   = TILE_SUMS + 32 * 4;
constexpr int   TILE_THREADS = 256;   // that write a tile: one for each group and lane

struct rows_args {
    const float * rows;
    int64_t       stride;   // of rows, in floats
    int           n_rows, n_tiles;
    char *        tiles;    // [chunk][n_tiles][TILE_BYTES]
    int *         counts;   // set to zero for few_rows_kernel()
    int           n_counts;
};

// A NaN remains one.
static __device__ __forceinline__ float within_halves(float x) {
    const float most = 65504.0f;
    return x > most ? most : x < -most ? -most : x;
}
static __device__ __forceinline__ float row_value(float x) { return within_halves(x * ROW_SCALE); }

// The pairs (0, 2) and (1, 3) of four values; returns their sum as they were rounded.
static __device__ __forceinline__ float make_pairs(const float4 x, half_pair & even, half_pair & odd) {
    even = pair_of(row_value(x.x), row_value(x.z));
    odd  = pair_of(row_value(x.y), row_value(x.w));
    return (low_float(even) + high_float(even)) + (low_float(odd) + high_float(odd));
}

// One block for each chunk (x) and tile (y).
template <k_order order> static __global__ void __launch_bounds__(TILE_THREADS) tile_rows_kernel(const rows_args args) {
    __shared__ float sums[8][32][2];
    const int        chunk = blockIdx.x, tile = blockIdx.y;
    const int        group = threadIdx.x / 32, lane = threadIdx.x % 32, t = lane % 4, row = TILE_ROWS * tile + lane / 4;
    char * const     to = args.tiles + ((int64_t) chunk * args.n_tiles + tile) * TILE_BYTES;

    ggml_cuda_pdl_lc();
    ggml_cuda_pdl_sync();
    if (tile == 0) {
        for (int i = chunk * TILE_THREADS + threadIdx.x; i < args.n_counts; i += gridDim.x * TILE_THREADS) {
            args.counts[i] = 0;
        }
    }
    float4 first = { 0, 0, 0, 0 }, second = { 0, 0, 0, 0 };
    if (row < args.n_rows) {
        const float * const from = args.rows + row * args.stride + chunk * CHUNK;
        first                    = *(const float4 *) (from + k_of<order>(t, group, 0));
        second                   = *(const float4 *) (from + k_of<order>(t, group, 1));
    }
    uint4       out;
    const float first_sum = make_pairs(first, out.x, out.y), second_sum = make_pairs(second, out.z, out.w);
    ((uint4 *) to)[group * 32 + lane] = out;

    // By sub-block: the two operands, or the two halves of the groups. The third order has no mins.
    const bool by_operand = order == k_order::halves_of_64;
    sums[group][lane][0]  = by_operand || group < 4 ? first_sum + (by_operand ? 0.0f : second_sum) : 0.0f;
    sums[group][lane][1]  = by_operand ? second_sum : group < 4 ? 0.0f : first_sum + second_sum;
    __syncthreads();
    if (group == 0) {
        float low = 0, high = 0;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            low += sums[i][lane][0];
            high += sums[i][lane][1];
        }
        ((half_pair *) (to + TILE_SUMS))[lane] =
            pair_of(within_halves(low * SUM_SCALE), within_halves(high * SUM_SCALE));
    }
}
