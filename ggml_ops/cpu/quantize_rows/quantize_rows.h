// Activations for packed weights: rows quantized to the same integers and scales as ggml's for this weight type (Q8_0,
// Q8_1 or Q8_K). A row is k values, then the scales of its blocks. Rows are aligned to 64 bytes, so no load of 64
// values crosses a cache line.

#pragma once

#include "ggml.h"

#include <cstddef>
#include <cstdint>

namespace dflash {

struct scale_q8_0 {   // for a block of 32 values
    float d;
    union {
        int32_t initial_sum;   // of the int32 accumulators: cancels the weights' offset (times the sum of the values),
                               // adds SUM_BIAS
        float sum;             // for weights with minima: d times the sum of the values, exact (ggml's Q8_1 rounds it
                               // to a half, which overflows above 65504)
    };
};

struct scale_q8_K {   // for a block of 256
    float   d;
    int16_t sums[16];   // of 16 values each
    int16_t pairs[8];   // of 32 values each
};

// The layout of rows for a weight type.
struct row_format {
    int     block_size, zero_point;   // zero_point: the stored weight that means 0
    int32_t sum_bias;
    bool    has_minima;   // of 32 weights each

    // d, a half as a float, and the sum of a block's values
    scale_q8_0 scale(float d, int32_t sum) const {
        scale_q8_0 s = { d, {} };
        if (has_minima) {
            s.sum = d * (float) sum;
        } else {
            s.initial_sum = sum_bias - zero_point * sum;
        }
        return s;
    }
};

bool   share_row_format(ggml_type a, ggml_type b);
size_t quantized_row_size(ggml_type weights, int64_t k);   // bytes

// x: the values [begin, end) of the row's k, in whole blocks.
void        quantize_row(ggml_type weights, const float * x, void * row, int64_t k, int64_t begin, int64_t end);
inline void quantize_row(ggml_type weights, const float * x, void * row, int64_t k) {
    quantize_row(weights, x, row, k, 0, k);
}

// quantize_row() of an instruction set.
using quantize_row_kernel = void (*)(
    const row_format & format, const float * x, void * row, int64_t k, int64_t begin, int64_t end);

}   // namespace dflash
