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

// A column's chunk in shared memory: the 16-byte units around it, and an odd number of them to the next column's, so
// that lanes do not meet in a bank.
template <few_rows_type type> static __host__ __device__ constexpr int chunk_units() {
    constexpr int bytes = lane_weights<type>::BYTES;
    return bytes % 16 == 0 ? bytes / 16 : (bytes + 14 + 15) / 16;
}
template <few_rows_type type> static __host__ __device__ constexpr int chunk_stride() {
    return 16 * (chunk_units<type>() % 2 ? chunk_units<type>() : chunk_units<type>() + 1);
}
static_assert(COLUMNS == 32 * WARPS, "a thread copies as many units as a column has");
constexpr int MOST_AHEAD = 3;

template <few_rows_type type> static __host__ __device__ constexpr int stage_bytes(int n_tiles) {
    return COLUMNS * chunk_stride<type>() + n_tiles * TILE_BYTES;
}

template <bool gated> static __host__ __device__ constexpr int columns_of_block() {
    return gated ? COLUMNS / 2 : COLUMNS;
}

// The column of the matrix that is a block's; past the last one, the last.
template <bool gated> static __device__ __forceinline__ int column_of(const few_rows_args & args, int column) {
    return min((int) blockIdx.x * columns_of_block<gated>() + column % columns_of_block<gated>(), args.n_columns - 1);
}
// Where its weights begin.
template <bool gated>
static const __device__ __forceinline__ char * weights_of(const few_rows_args & args, int column) {
    return (gated && column >= columns_of_block<gated>() ? args.up : args.weights) +
           column_of<gated>(args, column) * args.row_bytes;
}

// The 16 bytes number `unit` of a chunk, whose first byte may lie within the first of them.
template <few_rows_type type>
static __device__ __forceinline__ void copy_unit(char * shared, const char * chunk, int unit) {
    constexpr int   bytes = lane_weights<type>::BYTES;
    const uintptr_t start = (uintptr_t) chunk, from = (start & ~(uintptr_t) 15) + 16 * unit;
    if (bytes % 16 == 0) {
        copy_16_bytes(shared, chunk + 16 * unit);
    } else if (from < start + bytes) {
        copy_16_bytes(shared, (const void *) from);
    }
}

template <few_rows_type type, bool gated>
static __device__ __forceinline__ void copy_weights(const few_rows_args & args, char * shared, int chunk) {
    constexpr int bytes = lane_weights<type>::BYTES, stride = chunk_stride<type>(), units = chunk_units<type>();
    constexpr int n = columns_of_block<gated>(), step = 32 * WARPS / units, units_of_step = 32 * WARPS % units;
    int           column = threadIdx.x / units, unit = threadIdx.x % units;
    if (((int) blockIdx.x + 1) * n > args.n_columns) {   // the last block may have fewer
        for (int i = threadIdx.x; i < COLUMNS * units; i += 32 * WARPS) {
            const char * const from = weights_of<gated>(args, i / units) + (int64_t) chunk * bytes;
            copy_unit<type>(shared + i / units * stride + 16 * (i % units), from, i % units);
        }
        return;
    }
    const char * from = weights_of<gated>(args, column) + (int64_t) chunk * bytes;
    char *       to   = shared + column * stride + 16 * unit;
    // From the last column of the gate to the first of the other matrix.
    const int64_t to_up = gated ? args.up - args.weights - n * args.row_bytes : 0;
#pragma unroll(units > 9 ? 1 : units)   // addresses of more would take too many registers
    for (int i = 0; i < units; ++i) {   // COLUMNS * units are as many for each thread
        copy_unit<type>(to, from, unit);
        const bool was_gate = column < n;
        const bool wraps    = unit + units_of_step >= units;
        column += step + wraps;
        unit += units_of_step - (wraps ? units : 0);
        from += step * args.row_bytes + (wraps ? args.row_bytes : 0);
        to += step * stride + 16 * units_of_step + (wraps ? stride - 16 * units : 0);
        if (gated && was_gate && column >= n) {
            from += to_up;
        }
    }
}

template <int n_tiles>
static __device__ __forceinline__ void copy_tiles(const few_rows_args & args, char * shared, int chunk) {
    constexpr int      units = n_tiles * TILE_BYTES / 16, n_threads = 32 * WARPS;
    const int          at   = 16 * threadIdx.x;
    const char * const from = args.tiles + (int64_t) chunk * n_tiles * TILE_BYTES + at;
#pragma unroll
    for (int i = 0; i < units; i += n_threads) {
        if (i + n_threads <= units || i + (int) threadIdx.x < units) {
            copy_16_bytes(shared + at + 16 * i, from + 16 * i);
        }
    }
}

// One chunk of the block's 16 columns from `first` on by all rows. columns: where they lie in shared memory.
template <few_rows_type type, int n_tiles, bool gated>
static __device__ __forceinline__ void multiply_chunk(const few_rows_args & args, const char * columns, int first,
    int chunk, const char * tiles, float (&sums)[n_tiles][4]) {
    constexpr int      bytes = lane_weights<type>::BYTES, stride = chunk_stride<type>();
    const int          lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    lane_weights<type> weights[2];
    const char *       column[2];
    int                at[2] = {};   // 0 or 2 bytes before the chunk
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        column[i] = columns + (g + 8 * i) * stride;
        if (bytes % 16) {
            const char * const matrix = gated && first >= columns_of_block<gated>() ? args.up : args.weights;
            const uint32_t     of     = column_of<gated>(args, first + g + 8 * i);
            const uint32_t     begin =
                (uint32_t) (uintptr_t) matrix + of * (uint32_t) args.row_bytes + (uint32_t) (chunk * bytes);
            column[i] += begin % 16 & ~3;
            at[i] = (int) (begin & 3);
        }
        weights[i].load(column[i], at[i], t);
    }
#pragma unroll 1   // unrolled, loads of the second half take registers early
    for (int half = 0; half < 2; ++half) {
        weights[0].load_half(column[0], at[0], t, half);
        weights[1].load_half(column[1], at[1], t, half);
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

// As many have registers, at least; more would spill some.
static constexpr int blocks_of_multiprocessor(int n_tiles, bool cluster) {
    return n_tiles == 1 || (n_tiles == 2 && cluster) ? 4 : n_tiles <= 4 ? 3 : 2;
}

// Grid: column tiles (x), splits of k (y). With `cluster`, the splits of a column tile are a cluster.
template <few_rows_type type, int n_tiles, bool cluster, bool gated>
static __global__ void __launch_bounds__(32 * WARPS, blocks_of_multiprocessor(n_tiles, cluster))
    few_rows_kernel(const few_rows_args args) {
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
    int   filled = args.ahead % args.n_stages, read = 0;   // stages
    for (int i = 0; i < n; ++i) {
        wait_for_chunk(args.ahead);
        __syncthreads();
        const int next = i + args.ahead;
        if (next < n) {
            char * const stage = stages + filled * bytes;
            copy_weights<type, gated>(args, stage, begin + next);
            copy_tiles<n_tiles>(args, stage + tiles_at, begin + next);
        }
        close_copies();
        const char * const stage = stages + read * bytes;
        filled                   = filled + 1 == args.n_stages ? 0 : filled + 1;
        read                     = read + 1 == args.n_stages ? 0 : read + 1;
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
