// out[row][column] = weights[column] . rows[row] for 1 to 64 rows, on tensor cores.
//
// A block computes COLUMNS columns over a part of k, chunk by chunk: weights as they are in the file and tiles of rows
// are copied to shared memory a few chunks ahead, and each warp unpacks the weights of 32 columns once for all rows. k
// is split so that small matrices, too, fill the device; the parts of a column are added in the order of k. So a row's
// bits do not depend on how many rows there are: neither the parts nor the order of sums do.

#pragma once

#include "gemm/cuda/activations.cuh"

constexpr int   WARPS       = 4;
constexpr int   COLUMNS     = 32 * WARPS;
constexpr int   MOST_ROWS   = 64;
constexpr int   MOST_SPLITS = 8;   // blocks of a portable cluster
constexpr float OUT_SCALE   = 1.0f / (WEIGHT_SCALE * ROW_SCALE);

struct few_rows_args {
    const char * weights;
    const char * tiles;
    float *      out;
    float4 *     parts;    // [column tile][split][fragment][thread], if k is split and blocks form no cluster
    int *        counts;   // of finished blocks, by column tile: zero at the start
    int64_t      row_bytes, out_stride;
    int          n_columns, n_rows, n_chunks, n_stages;
};

// Bytes of a column's chunk in shared memory: whole 16-byte units around it, an odd number of them against conflicts.
template <few_rows_type type> static __host__ __device__ constexpr int chunk_stride() {
    constexpr int bytes = lane_weights<type>::BYTES;
    constexpr int units = bytes % 16 == 0 ? bytes / 16 : (bytes + 14 + 15) / 16;
    return 16 * (units % 2 ? units : units + 1);
}
template <few_rows_type type> static __host__ __device__ constexpr int stage_bytes(int n_tiles) {
    return COLUMNS * chunk_stride<type>() + n_tiles * TILE_BYTES;
}

template <few_rows_type type>
static __device__ __forceinline__ void copy_weights(const few_rows_args & args, char * shared, int chunk) {
    constexpr int bytes = lane_weights<type>::BYTES, stride = chunk_stride<type>();
    constexpr int units = bytes % 16 == 0 ? bytes / 16 : (bytes + 14 + 15) / 16;
#pragma unroll 4
    for (int i = threadIdx.x; i < COLUMNS * units; i += 32 * WARPS) {
        const int       column = i / units, unit = i % units;
        const int       of    = min((int) blockIdx.x * COLUMNS + column, args.n_columns - 1);
        const uintptr_t start = (uintptr_t) (args.weights + of * args.row_bytes + (int64_t) chunk * bytes);
        const uintptr_t end   = start + bytes;
        const uintptr_t from  = (start & ~(uintptr_t) 15) + 16 * unit;
        if (bytes % 16 == 0 || from < end) {
            copy_16_bytes(shared + column * stride + 16 * unit, (const void *) from);
        }
    }
}

template <int n_tiles>
static __device__ __forceinline__ void copy_tiles(const few_rows_args & args, char * shared, int chunk) {
    const char * const from = args.tiles + (int64_t) chunk * n_tiles * TILE_BYTES;
    for (int i = threadIdx.x; i < n_tiles * TILE_BYTES / 16; i += 32 * WARPS) {
        copy_16_bytes(shared + 16 * i, from + 16 * i);
    }
}

// One chunk of 16 columns by all rows. columns: where the warp's first one of these lies in shared memory.
template <few_rows_type type, int n_tiles>
static __device__ __forceinline__ void multiply_chunk(const few_rows_args & args, const char * columns, int first,
    int chunk, const char * tiles, float (&sums)[n_tiles][4]) {
    constexpr int      bytes = lane_weights<type>::BYTES, stride = chunk_stride<type>();
    const int          lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const char *       at[2];
    lane_weights<type> weights[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        at[i] = columns + (g + 8 * i) * stride;
        if (bytes % 16) {
            const int of = min(first + g + 8 * i, args.n_columns - 1);
            at[i] += (uintptr_t) (args.weights + of * args.row_bytes + (int64_t) chunk * bytes) & 15;
        }
        weights[i].load(at[i], t);
    }
#pragma unroll 1   // unrolled, loads of the second half take registers early
    for (int half = 0; half < 2; ++half) {
        weights[0].load_half(at[0], t, half);
        weights[1].load_half(at[1], t, half);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            half_pair low[4], high[4];
            weights[0].group(half, i, low);
            weights[1].group(half, i, high);
            const half_pair a_first[4]  = { low[0], high[0], low[1], high[1] };
            const half_pair a_second[4] = { low[2], high[2], low[3], high[3] };
#pragma unroll
            for (int tile = 0; tile < n_tiles; ++tile) {
                const uint4 b = ((const uint4 *) (tiles + tile * TILE_BYTES))[(4 * half + i) * 32 + lane];
                multiply_k16(sums[tile], a_first, b.x, b.y);
                multiply_k16(sums[tile], a_second, b.z, b.w);
            }
        }
    }
    if (lane_weights<type>::MINS) {
#pragma unroll
        for (int tile = 0; tile < n_tiles; ++tile) {
            const half_pair b = ((const half_pair *) (tiles + tile * TILE_BYTES + TILE_SUMS))[lane];
            multiply_k8(sums[tile], weights[0].mins(), weights[1].mins(), b);
        }
    }
}

static __device__ __forceinline__ void add(float4 & sum, const float4 part) {
    sum.x += part.x;
    sum.y += part.y;
    sum.z += part.z;
    sum.w += part.w;
}

// A fragment of 16 columns by a tile of rows, as mma leaves it: columns g and g + 8, rows 2t and 2t + 1.
static __device__ __forceinline__ void write_fragment(
    const few_rows_args & args, int fragment, int n_tiles, int thread, const float4 x) {
    const int   lane = thread % 32, g = lane / 4, t = lane % 4;
    const int   column    = (int) blockIdx.x * COLUMNS + thread / 32 * 32 + fragment / n_tiles * 16 + g;
    const int   row       = fragment % n_tiles * TILE_ROWS + 2 * t;
    const float values[4] = { x.x, x.y, x.z, x.w };
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        if (row + i % 2 < args.n_rows && column + i / 2 * 8 < args.n_columns) {
            args.out[(row + i % 2) * args.out_stride + column + i / 2 * 8] = values[i] * OUT_SCALE;
        }
    }
}

// Adds the blocks' parts of the sums in a cluster: each block those of some fragments.
template <int n_fragments>
static __device__ __forceinline__ void add_in_cluster(
    const few_rows_args & args, float4 * shared, const float4 (&sums)[n_fragments], int n_tiles) {
    __syncthreads();   // the last stage has been read
#pragma unroll
    for (int i = 0; i < n_fragments; ++i) {
        shared[i * 32 * WARPS + threadIdx.x] = sums[i];
    }
    meet_cluster();
    for (int item = blockIdx.y * 32 * WARPS + threadIdx.x; item < n_fragments * 32 * WARPS;
        item += gridDim.y * 32 * WARPS) {
        float4 sum = read_of_block(shared + item, 0);
        for (unsigned block = 1; block < gridDim.y; ++block) {
            add(sum, read_of_block(shared + item, block));
        }
        write_fragment(args, item / (32 * WARPS), n_tiles, item % (32 * WARPS), sum);
    }
    meet_cluster();   // a block's memory lives until all have read it
}

// The same through global memory: whichever block is the last to arrive adds all parts.
template <int n_fragments>
static __device__ __forceinline__ void add_in_memory(
    const few_rows_args & args, const float4 (&sums)[n_fragments], int n_tiles) {
    __shared__ bool last;
    float4 * const  parts = args.parts + (int64_t) blockIdx.x * gridDim.y * n_fragments * 32 * WARPS + threadIdx.x;
#pragma unroll
    for (int i = 0; i < n_fragments; ++i) {
        parts[(blockIdx.y * n_fragments + i) * 32 * WARPS] = sums[i];
    }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        last = atomicAdd(args.counts + blockIdx.x, 1) == (int) gridDim.y - 1;
    }
    __syncthreads();
    if (!last) {
        return;
    }
    __threadfence();
#pragma unroll
    for (int i = 0; i < n_fragments; ++i) {
        float4 sum = { 0, 0, 0, 0 };
        for (unsigned block = 0; block < gridDim.y; ++block) {
            add(sum, parts[(block * n_fragments + i) * 32 * WARPS]);
        }
        write_fragment(args, i, n_tiles, threadIdx.x, sum);
    }
}

// Grid: column tiles (x), splits of k (y). With `cluster`, the splits of a column tile are a cluster.
template <few_rows_type type, int n_tiles, bool cluster>
static __global__ void __launch_bounds__(32 * WARPS, n_tiles <= 2   ? 4
                                                     : n_tiles == 4 ? 3
                                                                    : 2) few_rows_kernel(const few_rows_args args) {
    char * const  stages      = block_memory();
    constexpr int AHEAD       = n_tiles > 2 ? 2 : 3;   // chunks
    constexpr int n_fragments = 2 * n_tiles;
    const int     begin       = (int) blockIdx.y * args.n_chunks / (int) gridDim.y;
    const int     n           = ((int) blockIdx.y + 1) * args.n_chunks / (int) gridDim.y - begin;
    const int     warp        = threadIdx.x / 32;
    const int     bytes       = stage_bytes<type>(n_tiles);

    // Weights are never written while a graph runs, so their copies need not wait for the kernel before this one.
    for (int i = 0; i < AHEAD && i < n; ++i) {
        copy_weights<type>(args, stages + i * bytes, begin + i);
    }
    ggml_cuda_pdl_sync();
    for (int i = 0; i < AHEAD; ++i) {
        if (i < n) {
            copy_tiles<n_tiles>(args, stages + i * bytes + COLUMNS * chunk_stride<type>(), begin + i);
        }
        close_copies();
    }

    float sums[2][n_tiles][4] = {};
    for (int i = 0; i < n; ++i) {
        wait_for_copies<AHEAD - 1>();
        __syncthreads();
        const int next = i + AHEAD;
        if (next < n) {
            char * const stage = stages + next % args.n_stages * bytes;
            copy_weights<type>(args, stage, begin + next);
            copy_tiles<n_tiles>(args, stage + COLUMNS * chunk_stride<type>(), begin + next);
        }
        close_copies();
        const char * const stage = stages + i % args.n_stages * bytes;
        const char * const tiles = stage + COLUMNS * chunk_stride<type>();
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int column = warp * 32 + half * 16;
            multiply_chunk<type, n_tiles>(args, stage + column * chunk_stride<type>(),
                (int) blockIdx.x * COLUMNS + column, begin + i, tiles, sums[half]);
        }
    }
    ggml_cuda_pdl_lc();

    float4 fragments[n_fragments];
#pragma unroll
    for (int i = 0; i < n_fragments; ++i) {
        const float * const x = sums[i / n_tiles][i % n_tiles];
        fragments[i]          = { x[0], x[1], x[2], x[3] };
    }
    if (gridDim.y == 1) {
#pragma unroll
        for (int i = 0; i < n_fragments; ++i) {
            write_fragment(args, i, n_tiles, threadIdx.x, fragments[i]);
        }
    } else if (cluster) {
        add_in_cluster(args, (float4 *) stages, fragments, n_tiles);
    } else {
        add_in_memory(args, fragments, n_tiles);
    }
}
