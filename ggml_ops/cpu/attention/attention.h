// Attention over a KV cache for passes of any width, on the CPU: ggml's FLASH_ATTN_EXT.
//
// Stock ggml has three ways (one row split over threads, few rows one after the other, tiles from 64 rows on), which
// read K and V once per row and head, and sum in different orders. Here K and V are read once for all rows and all
// heads of a KV group, and a row's result is the same, bit for bit, whatever else is in the pass, however many threads
// work, and whatever masked cells lie between its own:
//   scores         one chain of multiply-adds per (row, cell), along the head dimension
//   maximum        over all cells first: no running rescale
//   denominator    in fixed point (2^-40), so that the order does not count
//   values         one chain of multiply-adds per (row, column), in cell order; a masked cell adds exactly zero

#pragma once

#include "ggml.h"

#include <cstddef>
#include <cstdint>

struct ggml_compute_params;

namespace dflash {

// Whether this CPU and this op are served; what is not stays with ggml.
bool   attention_fits(const ggml_tensor * op);
size_t attention_work_size(int n_threads, const ggml_tensor * op);   // bytes
void   attention_compute(const ggml_compute_params * params, ggml_tensor * op);

// ---- between attention.cpp and the tiles of an instruction set ----

// Strides in bytes. A lane is one (row, head) pair of a KV head: lane l is row l / group, head kv_head * group + l %
// group.
struct attention_job {
    const char *  q, *k, *v, *mask;   // mask: F16, null if there is none
    const float * sinks;              // one per head, null if there are none
    float *       out;                // [dv, heads, rows, streams], contiguous
    size_t        q_row, q_head, q_stream, k_cell, k_head, k_stream, v_cell, v_head, v_stream, mask_row, mask_head,
        mask_stream;
    int64_t   dk, dv, cells, rows, heads, group, mask_heads, mask_streams, k_streams, streams;
    ggml_type k_type, v_type;
    float     scale, softcap, bias, bias_low,
        bias_high;   // ALiBi: bias > 0, slopes bias_low^(h+1), then bias_high^(2(h-bias_heads)+1)
    int64_t bias_heads;
};

struct attention_tile {
    int block;   // cells that are worked on at once
    void (*run)(
        const attention_job & job, int64_t stream, int64_t kv_head, int64_t lane, int64_t lanes, float * scratch);
};

// Floats that run() needs: Q, sums and scores of all lanes, a block of cells as read and turned, and which blocks are
// used by whom.
inline size_t attention_scratch(const attention_tile & tile, int64_t lanes, int64_t cells, int64_t dk, int64_t dv) {
    const int64_t blocks = (cells + tile.block - 1) / tile.block;
    return (size_t) (lanes * (dk + dv + blocks * tile.block) + 2 * tile.block * (dk > dv ? dk : dv) + 3 * blocks + 64 +
                     15) /
           16 * 16;
}
// What this CPU can run, the best first, null behind the last.
const attention_tile * const * attention_tiles();

}   // namespace dflash
