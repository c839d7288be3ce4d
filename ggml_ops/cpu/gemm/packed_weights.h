// Quantized weights in panels of 16 output columns, for passes of few rows.
//
// A panel holds 16 rows of the weight matrix (16 columns of the result) and the whole inner dimension, block after
// block. Within a block the same 4 inner positions of all 16 columns are neighbours: one 64-byte load feeds one dot
// product of 4 bytes in 16 columns, and what is loaded and unpacked once serves every row of the pass. All integers are
// those of the type's own format; only their order changes. What a product needs unsigned is stored with an offset,
// which the sums of the activations take back (quantize_rows.h).

#pragma once

#define GGML_COMMON_DECL_CPP
#include "ggml-common.h"
#include "ggml.h"

#include <cstddef>
#include <cstdint>

namespace dflash {

constexpr int PANEL = 16;   // columns

struct panel_q4_0 {   // 32 inner positions; IQ4_NL too, whose nibbles stand for values of a table
    ggml_half d[PANEL];
    uint8_t   q[4][64];   // [i][4 * column + j]: low nibble inner position 4 * i + j, high nibble 16 more
};

struct panel_mxfp4 {    // 32; nibbles as in panel_q4_0
    uint8_t e[PANEL];   // exponents of the scales
    uint8_t q[4][64];
};

struct panel_q8_0 {   // 32
    ggml_half d[PANEL];
    uint8_t   q[8][64];   // value + 128
};

struct panel_q4_K {   // 256: 8 sub-blocks of 32
    ggml_half d[PANEL], dmin[PANEL];
    uint8_t   scale[8][PANEL];
    uint8_t   min[4][PANEL][2];   // of two neighbouring sub-blocks
    uint8_t   q[8][4][64];        // as panel_q4_0, per sub-block
};

struct panel_q5_K {   // 256, as panel_q4_K
    ggml_half d[PANEL], dmin[PANEL];
    uint8_t   scale[8][PANEL];
    uint8_t   min[4][PANEL][2];
    uint8_t   q[8][4][64];   // the low nibbles
    uint8_t   h[8][64];      // [s][4 * column + j]: bit g is the fifth of inner position 4 * g + j
};

struct panel_q6_K {   // 256: 16 sub-blocks of 16
    ggml_half d[PANEL];
    int8_t    scale[8][PANEL][2];   // of two neighbouring sub-blocks
    uint8_t   q[16][2][64];   // value + 32: low nibbles, [s][i][4 * column + j]: inner position 4 * i + j, in the high
                              // nibble 8 more
    uint8_t h[16][64];   // [s][4 * column + j]: bits 2 * g and 2 * g + 1 are the upper two of inner position 4 * g + j
};

// What the nibbles of IQ4_NL (also with 128 added) and of MXFP4 (with 12 added) stand for: ggml-common.h.
alignas(16) constexpr int8_t VALUES_IQ4_NL[16] = { -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89,
    113 };
alignas(16) constexpr int8_t VALUES_IQ4_NL_128[16] = { 1, 24, 45, 63, 79, 93, 106, 118, (int8_t) 129, (int8_t) 141,
    (int8_t) 153, (int8_t) 166, (int8_t) 181, (int8_t) 197, (int8_t) 217, (int8_t) 241 };
alignas(16) constexpr int8_t VALUES_MXFP4_12[16]   = { 12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0 };

bool   has_panel_layout(ggml_type type);
int    panel_block_size(ggml_type type);    // inner positions of a block
size_t panel_block_bytes(ggml_type type);   // of 16 columns

inline int64_t n_blocks_of(const ggml_tensor * w) { return w->ne[0] / panel_block_size(w->type); }   // of a panel
inline size_t  panel_bytes(const ggml_tensor * w) { return n_blocks_of(w) * panel_block_bytes(w->type); }
inline int64_t n_panels_of(const ggml_tensor * w) { return (w->ne[1] + PANEL - 1) / PANEL; }   // of one matrix

// rows: 16 rows of `n_blocks` quantized blocks, `stride` bytes apart, in ggml's format.
// out: n_blocks * panel_block_bytes() bytes.
void pack_panel(ggml_type type, const void * rows, size_t stride, int64_t n_blocks, void * out);
// All matrices of a weight, by several threads. Missing columns of a matrix's last panel become zeros.
// out: all panels of all matrices, one after the other.
void pack_weights(const ggml_tensor * w, const void * data, void * out);

}   // namespace dflash
