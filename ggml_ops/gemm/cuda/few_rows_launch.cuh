// A product of few rows as launches: pointers and sizes, no tensors. Whoever includes this has
// start_kernel(kernel, grid, threads, shared bytes, stream, blocks of a cluster, args).

#pragma once

#include "gemm/cuda/few_rows_kernel.cuh"

#include <algorithm>

struct few_rows_product {
    few_rows_type type;
    const void *  weights;
    const float * rows;
    float *       out;
    int64_t       row_bytes;                 // of the weights
    int64_t       rows_stride, out_stride;   // in floats
    int           n_columns, n_rows, n_k;
};

// How k is split: by the matrix and the device, never by the number of rows. A power of two, as clusters like it.
static inline int few_rows_splits(int n_columns, int n_k, int n_multiprocessors) {
    const int n_blocks = (n_columns + COLUMNS - 1) / COLUMNS;
    int       splits   = 1;
    while (splits < MOST_SPLITS && 2 * splits <= n_k / CHUNK && n_blocks * splits < 2 * n_multiprocessors) {
        splits *= 2;
    }
    return splits;
}

static int few_rows_tiles(int n_rows) { return n_rows <= 8 ? 1 : n_rows <= 16 ? 2 : n_rows <= 32 ? 4 : 8; }

// Scratch memory: the tiles, the parts of split sums and the counts, in this order.
struct few_rows_scratch {
    size_t tiles, parts, counts, bytes;   // offsets, and the whole
};
static few_rows_scratch few_rows_scratch_of(const few_rows_product & p, int splits, bool cluster) {
    const size_t     n_tiles = few_rows_tiles(p.n_rows), n_blocks = (p.n_columns + COLUMNS - 1) / COLUMNS;
    const bool       shared = splits > 1 && !cluster;
    few_rows_scratch s      = {};
    s.parts                 = p.n_k / CHUNK * n_tiles * TILE_BYTES;
    s.counts                = s.parts + (shared ? n_blocks * splits * 2 * n_tiles * 32 * WARPS * sizeof(float4) : 0);
    s.bytes                 = s.counts + (shared ? n_blocks * sizeof(int) : 0);
    return s;
}

template <few_rows_type type, int n_tiles, bool cluster>
static void few_rows_launch(const few_rows_args & args, int splits, cudaStream_t stream) {
    const int     ahead = n_tiles > 2 ? 2 : 3;
    const int     n     = (args.n_chunks + splits - 1) / splits;
    few_rows_args all   = args;
    all.n_stages        = std::min(n, ahead + 1);
    // The last column's words are read four bytes too far.
    const size_t shared = all.n_stages * stage_bytes<type>(n_tiles) + 16;
    start_kernel(few_rows_kernel<type, n_tiles, cluster>, dim3((args.n_columns + COLUMNS - 1) / COLUMNS, splits),
        32 * WARPS, shared, stream, cluster ? splits : 1, all);
}

template <few_rows_type type, bool cluster>
static void few_rows_launch(const few_rows_product & p, char * memory, int splits, cudaStream_t stream) {
    const few_rows_scratch scratch = few_rows_scratch_of(p, splits, cluster);
    const int              n_tiles = few_rows_tiles(p.n_rows), n_chunks = p.n_k / CHUNK;
    int * const            counts = (int *) (memory + scratch.counts);
    const rows_args        rows   = { p.rows, p.rows_stride, p.n_rows, n_tiles, memory, counts,
                 (int) ((scratch.bytes - scratch.counts) / sizeof(int)) };
    start_kernel(
        tile_rows_kernel<lane_weights<type>::ORDER>, dim3(n_chunks, n_tiles), TILE_THREADS, 0, stream, 1, rows);
    const few_rows_args args = { (const char *) p.weights, memory, p.out, (float4 *) (memory + scratch.parts), counts,
        p.row_bytes, p.out_stride, p.n_columns, p.n_rows, n_chunks, 0 };
    switch (n_tiles) {
        case 1: few_rows_launch<type, 1, cluster>(args, splits, stream); break;
        case 2: few_rows_launch<type, 2, cluster>(args, splits, stream); break;
        case 4: few_rows_launch<type, 4, cluster>(args, splits, stream); break;
        default: few_rows_launch<type, 8, cluster>(args, splits, stream); break;
    }
}
