#include "cpu/quantize_rows/quantize_rows.h"

#include "cpu/gemm/packed_weights.h"
#include "cpu/isa/kernels.h"
#include "ggml-cpu.h"

#include <algorithm>
#include <cstring>

namespace dflash {

namespace {

row_format row_format_of(ggml_type weights) {
    return with_weight_type(weights, row_format(), [](auto t) {
        using T            = decltype(t);
        constexpr int size = T::panel::SIZE;   // rows of blocks of 256 serve every such type
        return row_format{ size, size == QK_K ? 0 : T::ZERO_POINT, T::SUM_BIAS, HAS_MINIMA_OF_32<T> };
    });
}

// Converts ggml's blocks to our layout.
void unpack(const block_q8_0 & b, const row_format & format, int8_t * q, scale_q8_0 & s) {
    int sum = 0;
    for (int i = 0; i < 32; ++i) {
        sum += b.qs[i];
    }
    s = format.scale(ggml_fp16_to_fp32(b.d), sum);
    std::memcpy(q, b.qs, 32);
}

void unpack(const block_q8_K & b, const row_format &, int8_t * q, scale_q8_K & s) {
    s.d = b.d;
    std::memcpy(s.sums, b.bsums, sizeof(s.sums));
    for (int i = 0; i < 8; ++i) {
        s.pairs[i] = (int16_t) (b.bsums[2 * i] + b.bsums[2 * i + 1]);
    }
    std::memcpy(q, b.qs, QK_K);
}

template <class Block, class Scale>
void quantize_with_ggml(
    ggml_type type, const row_format & format, const float * x, void * row, int64_t k, int64_t begin, int64_t end) {
    constexpr int64_t AT_ONCE = 8;   // blocks, on the stack
    Block             blocks[AT_ONCE];
    const auto        from_float = ggml_get_type_traits_cpu(type)->from_float;
    int8_t *          values     = (int8_t *) row;
    Scale *           scales     = (Scale *) (values + k);
    const int         block_size = format.block_size;
    for (int64_t b = begin / block_size; b < end / block_size; b += AT_ONCE) {
        const int64_t n = std::min(AT_ONCE, end / block_size - b);
        from_float(x + block_size * b - begin, blocks, block_size * n);
        for (int64_t i = 0; i < n; ++i) {
            unpack(blocks[i], format, values + block_size * (b + i), scales[b + i]);
        }
    }
}

quantize_row_kernel find_kernel() {
    for (const kernel_table * table : kernel_tables()) {
        if (table->quantize_row) {
            return table->quantize_row;
        }
    }
    return nullptr;
}

}   // namespace

bool share_row_format(ggml_type a, ggml_type b) {
    const row_format x = row_format_of(a), y = row_format_of(b);
    return x.block_size == y.block_size && x.zero_point == y.zero_point && x.sum_bias == y.sum_bias &&
           x.has_minima == y.has_minima;
}

size_t quantized_row_size(ggml_type weights, int64_t k) {
    const size_t scales =
        panel_block_size(weights) == QK_K ? k / QK_K * sizeof(scale_q8_K) : k / 32 * sizeof(scale_q8_0);
    return (k + scales + 63) / 64 * 64 | 64;   // an odd number of cache lines: 16 rows lie in 16 sets of the cache
}

void quantize_row(ggml_type weights, const float * x, void * row, int64_t k, int64_t begin, int64_t end) {
    static const quantize_row_kernel kernel = find_kernel();
    const row_format                 format = row_format_of(weights);
    if (kernel) {
        kernel(format, x, row, k, begin, end);
    } else if (format.block_size == QK_K) {
        quantize_with_ggml<block_q8_K, scale_q8_K>(GGML_TYPE_Q8_K, format, x, row, k, begin, end);
    } else {
        quantize_with_ggml<block_q8_0, scale_q8_0>(GGML_TYPE_Q8_0, format, x, row, k, begin, end);
    }
}

}   // namespace dflash
