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
constexpr int   TILE_THREADS = 256;
constexpr int   NORM_THREADS = 1024;

struct rows_args {
    const float * rows;
    int64_t       stride;   // of rows, in floats
    int           n_rows, n_k;
    char *        tiles;   // [chunk][tile][TILE_BYTES]
};

// The same with an RMS norm and its weight ahead: out gets what ggml's RMS_NORM and MUL would compute.
struct norm_args {
    rows_args     rows;
    const float * weight;
    float *       out;
    int64_t       out_stride;
    float         eps;
};

// Of a pass with n rows.
static __host__ __device__ constexpr int few_rows_tiles(int n) { return n <= 8 ? 1 : n <= 16 ? 2 : n <= 32 ? 4 : 8; }

// A NaN remains one.
static __device__ __forceinline__ float within_halves(float x) {
    const float most = 65504.0f;
    return x > most ? most : x < -most ? -most : x;
}
static __device__ __forceinline__ float row_value(float x) { return within_halves(x * ROW_SCALE); }

// Of n lanes in a row, in each of them.
template <int n> static __device__ __forceinline__ float sum_of_lanes(float x) {
#pragma unroll
    for (int by = n / 2; by; by /= 2) {
        x += __shfl_xor_sync(~0u, x, by);
    }
    return x;
}

// Writes four values of a row. Eight lanes in a row have the 32 values of a sub-block, so they add its sum.
template <k_order order>
static __device__ __forceinline__ void write_values(char * tiles, int n_tiles, int row, int k, const float4 x) {
    int group, t, second;
    place_of<order>(k, group, t, second);
    char * const tile = tiles + ((int64_t) (k / CHUNK) * n_tiles + row / TILE_ROWS) * TILE_BYTES;
    const int    g    = row % TILE_ROWS;
    uint2        pairs;
    pairs.x                                                 = pair_of(row_value(x.x), row_value(x.z));
    pairs.y                                                 = pair_of(row_value(x.y), row_value(x.w));
    ((uint2 *) tile)[(group * 32 + 4 * g + t) * 2 + second] = pairs;

    // Of the values as they were rounded, so that they cancel against the products.
    const float sum =
        sum_of_lanes<8>((low_float(pairs.x) + high_float(pairs.x)) + (low_float(pairs.y) + high_float(pairs.y)));
    if (k % 32 == 0) {
        const int       sub_block = k % CHUNK / 32;
        const half_pair both_sums = pair_of(within_halves(sum * SUM_SCALE), 0.0f);
        ((uint16_t *) (tile + TILE_SUMS))[(4 * g + sub_block / 2) * 2 + sub_block % 2] = (uint16_t) both_sums;
    }
}

// One block for 4 * TILE_THREADS values (x) of a row (y). Whole warps work, since n_k is a multiple of 256.
template <k_order order> static __global__ void __launch_bounds__(TILE_THREADS) tile_rows_kernel(const rows_args args) {
    const int n_tiles = few_rows_tiles(args.n_rows), row = blockIdx.y;
    const int k = 4 * ((int) blockIdx.x * TILE_THREADS + (int) threadIdx.x);
    ggml_cuda_pdl_lc();
    ggml_cuda_pdl_sync();
    if (k < args.n_k) {
        float4 x = { 0, 0, 0, 0 };
        if (row < args.n_rows) {
            x = *(const float4 *) (args.rows + row * args.stride + k);
        }
        write_values<order>(args.tiles, n_tiles, row, k, x);
    }
}

// One block for each row (y).
template <k_order order>
static __global__ void __launch_bounds__(NORM_THREADS) tile_norms_kernel(const norm_args args) {
    __shared__ float of_warps[NORM_THREADS / 32];
    const int        n_tiles = few_rows_tiles(args.rows.n_rows), row = blockIdx.y, lane = threadIdx.x % 32;
    const bool       is_row = row < args.rows.n_rows;
    const float *    from   = args.rows.rows + row * args.rows.stride;
    ggml_cuda_pdl_lc();
    ggml_cuda_pdl_sync();
    float sum = 0;
    for (int k = 4 * threadIdx.x; is_row && k < args.rows.n_k; k += 4 * NORM_THREADS) {
        const float4 x = *(const float4 *) (from + k);
        sum += x.x * x.x + x.y * x.y + x.z * x.z + x.w * x.w;
    }
    sum = sum_of_lanes<32>(sum);
    if (lane == 0) {
        of_warps[threadIdx.x / 32] = sum;
    }
    __syncthreads();
    sum               = sum_of_lanes<NORM_THREADS / 32>(of_warps[lane % (NORM_THREADS / 32)]);
    const float scale = rsqrtf(sum / args.rows.n_k + args.eps);
    for (int k = 4 * threadIdx.x; k < args.rows.n_k; k += 4 * NORM_THREADS) {
        float4 x = { 0, 0, 0, 0 };
        if (is_row) {
            x              = *(const float4 *) (from + k);
            const float4 w = *(const float4 *) (args.weight + k);
            x              = { scale * x.x * w.x, scale * x.y * w.y, scale * x.z * w.z, scale * x.w * w.w };
            *(float4 *) (args.out + row * args.out_stride + k) = x;
        }
        write_values<order>(args.rows.tiles, n_tiles, row, k, x);
    }
}
