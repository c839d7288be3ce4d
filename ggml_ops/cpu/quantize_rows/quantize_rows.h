// Activations for packed weights: rows quantized to the same integers and scales as ggml's for this weight type (Q8_0
// or Q8_K). A row is k values, then the scales of its blocks. Rows are aligned to 64 bytes, so no load of 64 values
// crosses a cache line.

#pragma once

#include "ggml.h"

#include <cstddef>
#include <cstdint>

namespace dflash {

struct scale_q8_0 {   // of a block of 32 values
    float   d;
    int32_t initial_sum;   // of the int32 accumulators: cancels what weights stored with an offset add (the offset
                           // times the sum of the values), and adds sum_bias()
};

struct scale_q8_K {   // of a block of 256
    float   d;
    int16_t sums[16];   // of 16 values
    int16_t pairs[8];   // of 32
};

// The bits of 1.5 * 2^23 as a float. An accumulator that starts there can be read as a float without conversion: 1.5 *
// 2^23 plus the sum, which stays below 2^22. Scales of MXFP4 can be too large for that.
constexpr int32_t BITS_OF_1_5_2_23 = 0x4b400000;
constexpr int32_t sum_bias(ggml_type weights) { return weights == GGML_TYPE_MXFP4 ? 0 : BITS_OF_1_5_2_23; }

size_t quantized_row_size(ggml_type weights, int64_t k);   // bytes
int    quantized_row_kind(ggml_type weights);              // types of the same kind use the same rows

// x: the values [begin, end) of the row's k, in whole blocks.
void        quantize_row(ggml_type weights, const float * x, void * row, int64_t k, int64_t begin, int64_t end);
inline void quantize_row(ggml_type weights, const float * x, void * row, int64_t k) {
    quantize_row(weights, x, row, k, 0, k);
}

// quantize_row() of an instruction set. zero_point: the stored weight that represents 0.
using quantize_row_kernel = void (*)(
    ggml_type weights, int zero_point, const float * x, void * row, int64_t k, int64_t begin, int64_t end);

}   // namespace dflash
