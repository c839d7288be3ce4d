// Quantized weights in panels of 16 output columns, for passes of few rows.
//
// A panel holds 16 rows of the weight matrix (16 columns of the result) and the whole inner dimension, block after
// block. Within a block the same 4 inner positions of all 16 columns are neighbours: one 64-byte load feeds one 16-lane
// dot product of 4 bytes, and what is loaded and unpacked once serves every row of the pass. All integers are those of
// the type's own format; only their order changes, and what a product needs unsigned is stored with an offset that the
// activations' sums take back.

#pragma once

#define GGML_COMMON_DECL_CPP
#include "ggml-common.h"
#include "ggml.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dflash {

constexpr int PANEL = 16;   // columns
constexpr int PANEL_AHEAD =
    8192;   // bytes that kernels ask of memory before they need them: the hardware's own prefetch comes too late

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

bool   panel_has_type(ggml_type type);
int    panel_block(ggml_type type);         // inner positions of a block
size_t panel_block_bytes(ggml_type type);   // of 16 columns
// rows: 16 rows of `blocks` quantized blocks, `stride` bytes apart, in ggml's format. out: blocks *
// panel_block_bytes().
void panel_pack(ggml_type type, const void * rows, size_t stride, int64_t blocks, void * out);

// One row of activations, quantized as ggml does for the type (Q8_0 or Q8_K): k values, then the scales of its blocks.
// Rows begin at multiples of 64 bytes, so that no load of 64 values crosses a cache line.
struct scale_q8_0 {   // of 32 values
    float   d;
    int32_t offset;   // where a sum of products starts: minus what weights with an offset add (the offset times the sum
                      // of the values), plus row_start()
};

// The bits of 1.5 * 2^23 as a float. A sum that starts there is a float too, without conversion: 1.5 * 2^23 more than
// the sum, which stays below 2^22.
constexpr int32_t ONE_AND_A_HALF = 0x4b400000;
constexpr int32_t row_start(ggml_type type) {
    return type == GGML_TYPE_MXFP4 ? 0 : ONE_AND_A_HALF;
}   // (scales of MXFP4 can be too large for that)

struct scale_q8_K {   // of 256
    float   d;
    int16_t sums[16];   // of 16 values
    int16_t pairs[8];   // of 32
};

size_t row_bytes(ggml_type type, int64_t k);
int    row_kind(ggml_type type);   // types of one kind take the same rows
// x: the values [from, to) of the row's k, whole blocks.
void        row_quantize(ggml_type type, const float * x, void * row, int64_t k, int64_t from, int64_t to);
inline void row_quantize(ggml_type type, const float * x, void * row, int64_t k) {
    row_quantize(type, x, row, k, 0, k);
}
// The same by this CPU's own code; false where there is none. zero: the weight that stands for 0.
bool row_quantize_here(ggml_type type, int zero, const float * x, void * row, int64_t k, int64_t from, int64_t to);

// out[r][16 * p + c] for panels [p0, p1) and rows [0, n): `rows` are row_bytes() apart, out's rows out_stride floats.
// A result is a function of its row and its column alone: whatever else is computed beside it, its operations are the
// same.
using panel_kernel = void (*)(const void * panels, int64_t blocks, int64_t p0, int64_t p1, const void * rows,
    size_t row_stride, int n, float * out, size_t out_stride);

// Kernels of the instruction sets that this CPU has, the best for few rows first. Tiles (AMX) are for many rows.
struct panel_choice {
    const char * set;   // "avx512-vnni", "avx512", "avx2-vnni", "avx2", "i8mm", "dotprod" or "amx"
    panel_kernel kernel;
};

std::vector<panel_choice> panel_kernels(ggml_type type);
panel_kernel              panel_find_amx(ggml_type type);   // null without
// One kernel for any number of rows, made of the best for few and for many, null if there is none. The environment
// variable DFLASH_PANELS may name the only set to use.
panel_kernel panel_find_kernel(ggml_type type);
// From how many rows on tiles serve. All kernels give the same bits, so that this is a matter of speed alone
// (docs/kernels.md).
int  panel_tiles_from(ggml_type type);
void panel_set_tiles_from(ggml_type type, int rows);

}   // namespace dflash
