// Quantized weights in panels of 16 output columns (weight_types.h), for passes with few rows.

#pragma once

#include "cpu/gemm/weight_types.h"
#include "ggml.h"

#include <cstddef>
#include <cstdint>

namespace dflash {

bool   has_panel_layout(ggml_type type);
int    panel_block_size(ggml_type type);    // inner positions per block
size_t panel_block_bytes(ggml_type type);   // for 16 columns

inline int64_t n_blocks_of(const ggml_tensor * w) { return w->ne[0] / panel_block_size(w->type); }   // per panel
inline size_t  panel_bytes(const ggml_tensor * w) { return n_blocks_of(w) * panel_block_bytes(w->type); }
inline int64_t n_panels_of(const ggml_tensor * w) { return (w->ne[1] + PANEL - 1) / PANEL; }   // per matrix

// rows: 16 rows of `n_blocks` quantized blocks, `stride` bytes apart, in ggml's format.
// out: n_blocks * panel_block_bytes() bytes.
void pack_panel(ggml_type type, const void * rows, size_t stride, int64_t n_blocks, void * out);
// Packs all matrices of a weight, with several threads; missing columns of a matrix's last panel become zeros.
// out: all panels of all matrices, in order.
void pack_weights(const ggml_tensor * w, const void * data, void * out);

}   // namespace dflash
