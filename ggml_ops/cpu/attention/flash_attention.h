// Attention over a KV cache for passes of any width, on the CPU: ggml's FLASH_ATTN_EXT.
//
// Stock ggml has three paths (one row split over threads, few rows in sequence, tiles from 64 rows on). They read K and
// V once per row and head, and sum in different orders. Here K and V are read once for all rows and heads of a KV head,
// and a row's result is bit-identical whatever else is in the pass, for any number of threads, and whatever masked
// cells are between its own:
//   scores         one chain of multiply-adds per (query, cell), along the head dimension
//   maximum        over all cells first: no running rescale
//   denominator    in fixed point (2^-40), so that the order does not matter
//   values         one chain of multiply-adds per (query, column), in cell order; a masked cell adds exactly zero
//
// A masked cell may contain anything, also what is not finite.

#pragma once

#include "cpu/attention/alibi.h"
#include "ggml.h"

#include <cstddef>
#include <cstdint>

struct ggml_compute_params;

namespace dflash {

// Whether this CPU has a kernel for the op; otherwise ggml computes it.
bool   flash_attention_fits(const ggml_tensor * op);
size_t flash_attention_work_size(int n_threads, const ggml_tensor * op);   // bytes
void   flash_attention_compute(const ggml_compute_params * params, ggml_tensor * op);

// ---- between flash_attention.cpp and the kernel of an instruction set ----

// A query is one (row, head) pair. Queries of a KV head are numbered row by row: query i is row i / n_gqa, head
// kv_head * n_gqa + i % n_gqa. Strides are in bytes.
struct flash_attention_args {
    const char *  q, *k, *v, *mask;   // mask: F16 or null
    const float * sinks;              // one per head, or null
    float *       out;                // [dv, n_heads, n_rows, n_streams], contiguous
    size_t        q_row, q_head, q_stream, k_cell, k_head, k_stream, v_cell, v_head, v_stream, mask_row, mask_head,
        mask_stream;
    int64_t      dk, dv, n_cells, n_rows, n_heads, n_gqa, n_mask_heads, n_mask_streams, n_k_streams, n_streams;
    ggml_type    k_type, v_type;
    float        scale, softcap;
    alibi_slopes slopes;
};

constexpr int64_t FLASH_ATTENTION_QUERIES = 64;   // most queries per kernel call

struct flash_attention_kernel {
    int block;   // cells processed together
    // Computes queries [first, first + n_queries) of a KV head over all cells; scratch: flash_attention_scratch()
    // floats
    void (*compute)(const flash_attention_args & args, int64_t stream, int64_t kv_head, int64_t first,
        int64_t n_queries, float * scratch);
};

// Number of floats: Q, sums and scores of all queries, a block of cells as read and transposed, and which queries see
// which block.
inline size_t flash_attention_scratch(
    const flash_attention_kernel & kernel, int64_t n_queries, int64_t n_cells, int64_t dk, int64_t dv) {
    const int64_t blocks = (n_cells + kernel.block - 1) / kernel.block;
    const int64_t floats =
        n_queries * (dk + dv + blocks * kernel.block) + 2 * kernel.block * (dk > dv ? dk : dv) + 3 * blocks + 64;
    return (size_t) (floats + 15) / 16 * 16;
}

}   // namespace dflash
