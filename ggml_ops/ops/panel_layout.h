// Quantized weights in panels of 16 output columns, for passes of few rows.
//
// A panel holds 16 rows of the weight matrix (16 columns of the result) and the whole inner dimension, block after block. Within a block
// the same 4 inner positions of all 16 columns are neighbours: one 64-byte load feeds one 16-lane dot product of 4 bytes, and
// what is loaded and unpacked once serves every row of the pass. All integers are those of the type's own format; only their order
// changes, and what a product needs unsigned is stored with an offset that the activations' sums take back.

#pragma once

#define GGML_COMMON_DECL_CPP
#include "ggml-common.h"
#include "ggml.h"

#include <cstddef>
#include <cstdint>

namespace dflash {

constexpr int PANEL       = 16;     // columns
constexpr int PANEL_AHEAD = 8192;   // bytes that kernels ask of memory before they need them: the hardware's own prefetch comes too late

struct panel_q4_0 {         // 32 inner positions
    ggml_half d[PANEL];
    uint8_t   q[4][64];     // [i][4 * column + j]: low nibble inner position 4 * i + j, high nibble 16 more
};

struct panel_q8_0 {         // 32
    ggml_half d[PANEL];
    uint8_t   q[8][64];     // value + 128
};

struct panel_q4_K {         // 256: 8 sub-blocks of 32
    ggml_half d[PANEL], dmin[PANEL];
    uint8_t   scale[8][PANEL];
    uint8_t   min[4][PANEL][2];   // of two neighbouring sub-blocks
    uint8_t   q[8][4][64];  // as panel_q4_0, per sub-block
};

struct panel_q6_K {         // 256: 16 sub-blocks of 16
    ggml_half d[PANEL];
    int8_t    scale[16][PANEL];
    uint8_t   q[16][4][64]; // value + 32, whole bytes
};

bool   panel_has_type(ggml_type type);
int    panel_block(ggml_type type);          // inner positions of a block
size_t panel_block_bytes(ggml_type type);    // of 16 columns
// rows: 16 rows of `blocks` quantized blocks, `stride` bytes apart, in ggml's format. out: blocks * panel_block_bytes().
void   panel_pack(ggml_type type, const void * rows, size_t stride, int64_t blocks, void * out);

// One row of activations, quantized as ggml does for the type (Q8_0 or Q8_K): k values, then the scales of its blocks. Rows begin at
// multiples of 64 bytes, so that no load of 64 values crosses a cache line.
struct scale_q8_0 {         // of 32 values
    float   d;
    int32_t offset;         // minus what unsigned weights add: their offset times the sum of the values
};

struct scale_q8_K {         // of 256
    float   d;
    int16_t sums[16];       // of 16 values
    int16_t pairs[8];       // of 32
};

size_t row_bytes(ggml_type type, int64_t k);
void   row_quantize(ggml_type type, const float * x, void * row, int64_t k);

// out[r][16 * p + c] for panels [p0, p1) and rows [0, n): `rows` are row_bytes() apart, out's rows out_stride floats.
// A result is a function of its row and its column alone: whatever else is computed beside it, its operations are the same.
using panel_kernel = void (*)(const void * panels, int64_t blocks, int64_t p0, int64_t p1, const void * rows, size_t row_stride, int n, float * out, size_t out_stride);
// The best kernels that this CPU can run, null if there are none: one that serves any number of rows, made of those for few and for many.
panel_kernel panel_find_kernel(ggml_type type);
panel_kernel panel_find_vnni(ggml_type type);
panel_kernel panel_find_amx(ggml_type type);

}  // namespace dflash
