// A product of few rows as launches: pointers and sizes, no tensors.

#pragma once

#include "gemm/cuda/few_rows_kernel.cuh"
#include "gemm/cuda/start_kernel.cuh"

#include <algorithm>
#include <type_traits>

// out = rows * weights, + added; with `up`: silu(rows * weights) * (rows * up). Strides are in floats.
struct few_rows_product {
    few_rows_type type;
    const void *  weights;
    const void *  up;   // or null
    float *       out;
    const float * added;   // or null
    int64_t       row_bytes, out_stride, added_stride;
    int           n_columns, n_rows, n_k;
    int           most_shared;   // bytes of shared memory that a block may have
};

static inline int few_rows_blocks(const few_rows_product & p) {
    const int n = p.up ? columns_of_block<true>() : columns_of_block<false>();
    return (p.n_columns + n - 1) / n;
}

// How k is split: by the matrix and the device, never by the number of rows. A power of two, as clusters like it.
// Parts that are added in a cluster cost little, so there are enough blocks for four on each multiprocessor.
static inline int few_rows_splits(const few_rows_product & p, int n_multiprocessors, bool cluster) {
    const int wanted = (cluster ? 4 : 2) * n_multiprocessors;
    int       splits = 1;
    while (splits < MOST_SPLITS && 2 * splits <= p.n_k / CHUNK && few_rows_blocks(p) * splits < wanted) {
        splits *= 2;
    }
    return splits;
}

// Bytes of the tiles of rows; of the parts of sums if blocks form no cluster, and of the counts.
static inline size_t few_rows_tile_bytes(int n_rows, int n_k) {
    return (size_t) n_k / CHUNK * few_rows_tiles(n_rows) * TILE_BYTES;
}
static inline size_t few_rows_part_bytes(const few_rows_product & p, int splits) {
    return splits > 1
               ? (size_t) few_rows_blocks(p) * splits * 2 * few_rows_tiles(p.n_rows) * 32 * WARPS * sizeof(float4)
               : 0;
}

// What a product needs beside its own operands.
struct few_rows_memory {
    char *   tiles;    // of its rows, in its weights' order
    float4 * parts;    // or null: blocks form clusters
    int *    counts;   // one for each block, zero between products
};

// Stages of a block: of as many chunks as it has, as it reads ahead, and as fit into its shared memory. The last
// column's words are read four bytes too far.
struct few_rows_stages {
    int n, ahead, bytes;
};
static inline few_rows_stages few_rows_stages_of(int stage_bytes, int n_chunks, int most_bytes) {
    const int n = std::min({ n_chunks, MOST_AHEAD + 1, (most_bytes - 16) / stage_bytes });
    return { n, std::min(MOST_AHEAD, n == n_chunks ? n : n - 1), n * stage_bytes + 16 };
}

template <few_rows_type type, int n_tiles, bool cluster, bool gated>
static void few_rows_start(
    const few_rows_product & p, const few_rows_memory & memory, int splits, cudaStream_t stream) {
    const int             n_chunks = p.n_k / CHUNK, n = (n_chunks + splits - 1) / splits;
    const few_rows_stages stages = few_rows_stages_of(stage_bytes<type>(n_tiles), n, p.most_shared);
    const few_rows_args   args   = { (const char *) p.weights, (const char *) p.up, memory.tiles, p.out, p.added,
            memory.parts, memory.counts, p.row_bytes, p.out_stride, p.added_stride, p.n_columns, p.n_rows, n_chunks,
            stages.n, stages.ahead };
    start_kernel(few_rows_kernel<type, n_tiles, cluster, gated>, dim3(few_rows_blocks(p), splits), 32 * WARPS,
        (size_t) stages.bytes, stream, cluster ? splits : 1, args);
}

template <few_rows_type type, bool cluster, bool gated>
static void few_rows_start(
    const few_rows_product & p, const few_rows_memory & memory, int splits, cudaStream_t stream) {
    switch (few_rows_tiles(p.n_rows)) {
        case 1: few_rows_start<type, 1, cluster, gated>(p, memory, splits, stream); break;
        case 2: few_rows_start<type, 2, cluster, gated>(p, memory, splits, stream); break;
        case 4: few_rows_start<type, 4, cluster, gated>(p, memory, splits, stream); break;
        default: few_rows_start<type, 8, cluster, gated>(p, memory, splits, stream); break;
    }
}

template <few_rows_type type, bool cluster>
static void few_rows_start(
    const few_rows_product & p, const few_rows_memory & memory, int splits, cudaStream_t stream) {
    if (p.up) {
        few_rows_start<type, cluster, true>(p, memory, splits, stream);
    } else {
        few_rows_start<type, cluster, false>(p, memory, splits, stream);
    }
}

// f with a type, an order, as a constant.
template <class F> static auto with_type(few_rows_type type, const F & f) {
    switch (type) {
        case few_rows_type::q5_K: return f(std::integral_constant<few_rows_type, few_rows_type::q5_K>());
        case few_rows_type::q6_K: return f(std::integral_constant<few_rows_type, few_rows_type::q6_K>());
        case few_rows_type::q8_0: return f(std::integral_constant<few_rows_type, few_rows_type::q8_0>());
        case few_rows_type::q4_0: return f(std::integral_constant<few_rows_type, few_rows_type::q4_0>());
        case few_rows_type::q4_1: return f(std::integral_constant<few_rows_type, few_rows_type::q4_1>());
        case few_rows_type::iq4_xs: return f(std::integral_constant<few_rows_type, few_rows_type::iq4_xs>());
        default: return f(std::integral_constant<few_rows_type, few_rows_type::q4_K>());
    }
}
template <class F> static auto with_order(k_order order, const F & f) {
    switch (order) {
        case k_order::halves_of_32: return f(std::integral_constant<k_order, k_order::halves_of_32>());
        case k_order::strides_of_32: return f(std::integral_constant<k_order, k_order::strides_of_32>());
        default: return f(std::integral_constant<k_order, k_order::halves_of_64>());
    }
}

// Whether two stages fit, of which one is filled while the other is multiplied.
static inline bool few_rows_fit(few_rows_type type, int n_rows, int most_shared) {
    return with_type(type,
        [&](auto type) { return 2 * stage_bytes<decltype(type)::value>(few_rows_tiles(n_rows)) + 16 <= most_shared; });
}

static inline k_order order_of(few_rows_type type) {
    return with_type(type, [](auto type) { return lane_weights<decltype(type)::value>::ORDER; });
}

static inline void few_rows_tile(k_order order, const rows_args & rows, cudaStream_t stream) {
    const dim3 grid((rows.n_k + 4 * TILE_THREADS - 1) / (4 * TILE_THREADS), TILE_ROWS * few_rows_tiles(rows.n_rows));
    with_order(order, [&](auto order) {
        start_kernel(tile_rows_kernel<decltype(order)::value>, grid, TILE_THREADS, 0, stream, 1, rows);
    });
}

static inline void few_rows_norm(k_order order, const norm_args & norm, cudaStream_t stream) {
    const dim3 grid(1, TILE_ROWS * few_rows_tiles(norm.rows.n_rows));
    with_order(order, [&](auto order) {
        start_kernel(tile_norms_kernel<decltype(order)::value>, grid, NORM_THREADS, 0, stream, 1, norm);
    });
}

template <bool cluster>
static void few_rows_multiply(
    const few_rows_product & p, const few_rows_memory & memory, int splits, cudaStream_t stream) {
    with_type(p.type, [&](auto type) { few_rows_start<decltype(type)::value, cluster>(p, memory, splits, stream); });
}
