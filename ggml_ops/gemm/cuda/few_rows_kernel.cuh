// out[row][column] = weights[column] . rows[row] for 1 to 64 rows, on tensor cores.
//
// A block computes COLUMNS columns over a part of k, chunk by chunk: weights as they are in the file and tiles of rows
// are copied to shared memory a few chunks ahead, and each warp unpacks the weights of 32 columns once for all rows. k
// is split so that small matrices, too, fill the device; the parts of a column are added in the order of k. So a row's
// bits do not depend on how many rows there are: neither the parts nor the order of sums do.
//
// Gated, a block has half as many columns, of two matrices: out = silu(gate) * up.

#pragma once

#include "gemm/cuda/activations.cuh"

constexpr int   WARPS       = 4;
constexpr int   COLUMNS     = 32 * WARPS;
constexpr int   MOST_ROWS   = 64;
constexpr int   MOST_SPLITS = 8;   // blocks of a portable cluster
constexpr float OUT_SCALE   = 1.0f / (WEIGHT_SCALE * ROW_SCALE);

struct few_rows_args {
    const char *  weights;
    const char *  up;   // gated: the second matrix
    const char *  tiles;
    float *       out;
    const float * added;    // to the result; or null
    float4 *      parts;    // [column tile][split][fragment][thread], if k is split and blocks form no cluster
    int *         counts;   // of finished blocks, by column tile: zero between launches
    int64_t       row_bytes, out_stride, added_stride;
    int           n_columns, n_rows, n_chunks;
    int           n_stages, ahead;   // in shared memory; chunks under way while one is multiplied
};

// Bytes of a column's chunk in shared memory: whole 16-byte units around it, an odd number of them against conflicts.
template <few_rows_type type> static __host__ __device__ constexpr int chunk_stride() {
    constexpr int bytes = lane_weights<type>::BYTES;
    constexpr int units = bytes % 16 == 0 ? bytes / 16 : (bytes + 14 + 15) / 16;
    return 16 * (units % 2 ? units : units + 1);
}
constexpr int MOST_AHEAD = 3;

template <few_rows_type type> static __host__ __device__ constexpr int stage_bytes(int n_tiles) {
    return COLUMNS * chunk_stride<type>() + n_tiles * TILE_BYTES;
}

template <bool gated> static __host__ __device__ constexpr int columns_of_block() {
    return gated ? COLUMNS / 2 : COLUMNS;
}

// Where the weights of a block's column begin. Columns past the last one repeat it.
template <bool gated>
static const __device__ __forceinline__ char * weights_of(const few_rows_args & args, int column) {
    constexpr int n  = columns_of_block<gated>();
    const int     of = min((int) blockIdx.x * n + column % n, args.n_columns - 1);
    return (gated && column >= n ? args.up : args.weights) + of * args.row_bytes;
}

template <few_rows_type type, bool gated>
static __device__ __forceinline__ void copy_weights(const few_rows_args & args, char * shared, int chunk) {
    constexpr int bytes = lane_weights<type>::BYTES, stride = chunk_stride<type>();
    constexpr int units = bytes % 16 == 0 ? bytes / 16 : (bytes + 14 + 15) / 16;
#pragma unroll 4
    for (int i = threadIdx.x; i < COLUMNS * units; i += 32 * WARPS) {
        const int       column = i / units, unit = i % units;
        const uintptr_t start = (uintptr_t) (weights_of<gated>(args, column) + (int64_t) chunk * bytes);
        const uintptr_t from  = (start & ~(uintptr_t) 15) + 16 * unit;
        if (bytes % 16 == 0 || from < start + bytes) {
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

// One chunk of the block's 16 columns from `first` on by all rows. columns: where they lie in shared memory.
template <few_rows_type type, int n_tiles, bool gated>
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
            at[i] += (uintptr_t) (weights_of<gated>(args, first + g + 8 * i) + (int64_t) chunk * bytes) & 15;
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
            uint4           rows[n_tiles];
#pragma unroll
            for (int tile = 0; tile < n_tiles; ++tile) {
                rows[tile] = ((const uint4 *) (tiles + tile * TILE_BYTES))[(4 * half + i) * 32 + lane];
                multiply_k16(sums[tile], a_first, rows[tile].x, rows[tile].y);
            }
#pragma unroll
            for (int tile = 0; tile < n_tiles; ++tile) {   // each waits for its own sum of the first
                multiply_k16(sums[tile], a_second, rows[tile].z, rows[tile].w);
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

static __device__ __forceinline__ float gated_value(float gate, float up) {
    return gate * OUT_SCALE / (1.0f + expf(-gate * OUT_SCALE)) * (up * OUT_SCALE);
}

// A fragment of 16 columns by a tile of rows, as mma leaves it in a thread: columns g and g + 8, rows 2t and 2t + 1.
// Gated, the thread is one of the gate's half, and `up` is what the other half's has.
template <int n_tiles, bool gated>
static __device__ __forceinline__ void write_fragment(
    const few_rows_args & args, int fragment, int thread, const float4 x, const float4 up) {
    const int   lane = thread % 32, g = lane / 4, t = lane % 4;
    const int   column = (int) blockIdx.x * columns_of_block<gated>() + thread / 32 * 32 + fragment / n_tiles * 16 + g;
    const int   row    = fragment % n_tiles * TILE_ROWS + 2 * t;
    const float values[4] = { x.x, x.y, x.z, x.w }, ups[4] = { up.x, up.y, up.z, up.w };
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int of_row = row + i % 2, of_column = column + i / 2 * 8;
        if (of_row < args.n_rows && of_column < args.n_columns) {
            const float added = args.added ? args.added[of_row * args.added_stride + of_column] : 0.0f;
            args.out[of_row * args.out_stride + of_column] =
                (gated ? gated_value(values[i], ups[i]) : values[i] * OUT_SCALE) + added;
        }
    }
}

// Writes the fragments of the threads that have the result: all, or gated the first half. sum(fragment, thread) is a
// fragment over the whole of k. The blocks of a cluster share the work.
template <int n_tiles, bool gated, typename Sum>
static __device__ __forceinline__ void write_fragments(const few_rows_args & args, int first, int step, Sum sum) {
    constexpr int n_threads = gated ? 16 * WARPS : 32 * WARPS;
    for (int item = first; item < 2 * n_tiles * n_threads; item += step) {
        const int    fragment = item / n_threads, thread = item % n_threads;
        const float4 x = sum(fragment, thread);
        write_fragment<n_tiles, gated>(args, fragment, thread, x, gated ? sum(fragment, thread + n_threads) : x);
    }
}

// Adds the blocks' parts in a cluster, or without one takes what the block's own threads have.
template <int n_tiles, bool cluster, bool gated>
static __device__ __forceinline__ void finish_in_blocks(
    const few_rows_args & args, float4 * shared, const float4 (&sums)[2 * n_tiles]) {
    __syncthreads();   // the last stage has been read
#pragma unroll
    for (int i = 0; i < 2 * n_tiles; ++i) {
        shared[i * 32 * WARPS + threadIdx.x] = sums[i];
    }
    if (cluster) {
        meet_cluster();
    } else {
        __syncthreads();
    }
    const int first = cluster ? blockIdx.y * 32 * WARPS + threadIdx.x : threadIdx.x;
    const int step  = cluster ? gridDim.y * 32 * WARPS : 32 * WARPS;
    write_fragments<n_tiles, gated>(args, first, step, [&](int fragment, int thread) {
        const float4 * const own = shared + fragment * 32 * WARPS + thread;
        float4               sum = cluster ? read_of_block(own, 0) : *own;
        for (unsigned block = 1; cluster && block < gridDim.y; ++block) {
            add(sum, read_of_block(own, block));
        }
        return sum;
    });
    if (cluster) {
        meet_cluster();   // a block's memory lives until all have read it
    }
}

// The same through global memory: whichever block is the last to arrive adds all parts.
template <int n_tiles, bool gated>
static __device__ __forceinline__ void finish_in_memory(const few_rows_args & args, const float4 (&sums)[2 * n_tiles]) {
    __shared__ bool last;
    float4 * const  parts = args.parts + (int64_t) blockIdx.x * gridDim.y * 2 * n_tiles * 32 * WARPS;
#pragma unroll
    for (int i = 0; i < 2 * n_tiles; ++i) {
        parts[(blockIdx.y * 2 * n_tiles + i) * 32 * WARPS + threadIdx.x] = sums[i];
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
    if (threadIdx.x == 0) {
        args.counts[blockIdx.x] = 0;
    }
    write_fragments<n_tiles, gated>(args, threadIdx.x, 32 * WARPS, [&](int fragment, int thread) {
        float4 sum = parts[fragment * 32 * WARPS + thread];
        for (unsigned block = 1; block < gridDim.y; ++block) {
            add(sum, parts[(block * 2 * n_tiles + fragment) * 32 * WARPS + thread]);
        }
        return sum;
    });
}

// Until the first of the chunks under way has arrived.
static __device__ __forceinline__ void wait_for_chunk(int ahead) {
    if (ahead == MOST_AHEAD) {
        wait_for_copies<MOST_AHEAD - 1>();
    } else if (ahead == 2) {
        wait_for_copies<1>();
    } else {
        wait_for_copies<0>();
    }
}

// Grid: column tiles (x), splits of k (y). With `cluster`, the splits of a column tile are a cluster.
template <few_rows_type type, int n_tiles, bool cluster, bool gated>
static __global__ void __launch_bounds__(32 * WARPS, n_tiles <= 2   ? 4
                                                     : n_tiles == 4 ? 3
                                                                    : 2) few_rows_kernel(const few_rows_args args) {
#ifdef __CUDA_ARCH__
    if (cluster != (__CUDA_ARCH__ >= 900)) {
        return;   // of the two, each device has one
    }
#endif
    char * const  stages   = block_memory();
    constexpr int tiles_at = COLUMNS * chunk_stride<type>();
    const int     begin    = (int) blockIdx.y * args.n_chunks / (int) gridDim.y;
    const int     n        = ((int) blockIdx.y + 1) * args.n_chunks / (int) gridDim.y - begin;
    const int     warp = threadIdx.x / 32, bytes = stage_bytes<type>(n_tiles);

    // Weights are never written while a graph runs, so their copies need not wait for the kernel before this one.
    for (int i = 0; i < args.ahead && i < n; ++i) {
        copy_weights<type, gated>(args, stages + i * bytes, begin + i);
    }
    ggml_cuda_pdl_sync();
    for (int i = 0; i < args.ahead; ++i) {
        if (i < n) {
            copy_tiles<n_tiles>(args, stages + i * bytes + tiles_at, begin + i);
        }
        close_copies();
    }

    float sums[2][n_tiles][4] = {};
    for (int i = 0; i < n; ++i) {
        wait_for_chunk(args.ahead);
        __syncthreads();
        const int next = i + args.ahead;
        if (next < n) {
            char * const stage = stages + next % args.n_stages * bytes;
            copy_weights<type, gated>(args, stage, begin + next);
            copy_tiles<n_tiles>(args, stage + tiles_at, begin + next);
        }
        close_copies();
        const char * const stage = stages + i % args.n_stages * bytes;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int column = warp * 32 + half * 16;
            multiply_chunk<type, n_tiles, gated>(
                args, stage + column * chunk_stride<type>(), column, begin + i, stage + tiles_at, sums[half]);
        }
    }
    ggml_cuda_pdl_lc();

    float4 fragments[2 * n_tiles];
#pragma unroll
    for (int i = 0; i < 2 * n_tiles; ++i) {
        const float * const x = sums[i / n_tiles][i % n_tiles];
        fragments[i]          = { x[0], x[1], x[2], x[3] };
    }
    if (gridDim.y == 1 && !gated) {
#pragma unroll
        for (int i = 0; i < 2 * n_tiles; ++i) {
            write_fragment<n_tiles, gated>(args, i, threadIdx.x, fragments[i], fragments[i]);
        }
    } else if (cluster || gridDim.y == 1) {
        finish_in_blocks<n_tiles, cluster, gated>(args, (float4 *) stages, fragments);
    } else {
        finish_in_memory<n_tiles, gated>(args, fragments);
    }
}
