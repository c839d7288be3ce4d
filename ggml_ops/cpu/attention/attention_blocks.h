// Code shared by attention with and without flash attention: the same operations in the same order for every row.
// Included by isa/<set>.cpp after its vectors.

constexpr int BLOCK = 2 * simd::W;   // cells

// The cells of a head are far apart: the hardware does not prefetch them, and they map to few sets of the first-level
// cache. So the next block is prefetched into the second-level cache while the current one is processed.
ISA_INLINE void prefetch_bytes(const void * from, size_t bytes) {
    for (size_t i = 0; i < bytes; i += 64) {
        __builtin_prefetch((const char *) from + i, 0, 2);
    }
}

// scores[r][c] = q[r] . k[c] for a block of cells, which are side by side in a vector
template <int R>
ISA_INLINE void score_rows(const float * q, const float * k, int64_t dk, float * scores, int64_t scores_stride) {
    simd::f32 low[R], high[R];
    for (int r = 0; r < R; ++r) {
        low[r] = high[r] = simd::set1(0.0f);
    }
    for (int64_t d = 0; d < dk; ++d) {
        const simd::f32 k_low = simd::load_f32(k + d * BLOCK), k_high = simd::load_f32(k + d * BLOCK + simd::W);
        for (int r = 0; r < R; ++r) {
            const simd::f32 x = simd::set1(q[r * dk + d]);
            low[r]            = simd::fma(x, k_low, low[r]);
            high[r]           = simd::fma(x, k_high, high[r]);
        }
    }
    for (int r = 0; r < R; ++r) {
        simd::store(scores + r * scores_stride, low[r]);
        simd::store(scores + r * scores_stride + simd::W, high[r]);
    }
}

// A vector of scaled scores under a mask. A hidden cell may contain a NaN or an infinity, and so may its score.
ISA_INLINE simd::f32 masked(simd::f32 scores, simd::f32 mask, float slope) {
    return simd::hide(mask, simd::fma(mask, simd::set1(slope), scores));
}

// Replaces whole vectors of n scores by e^(score - top), and adds them to the fixed-point sum.
ISA_INLINE simd::i64 exponentials(float * scores, int64_t n, float top, simd::i64 sum) {
    for (int64_t i = 0; i < n; i += simd::W) {
        const simd::f32 p = simd::exp(simd::fma(simd::set1(-1.0f), simd::set1(top), simd::load_f32(scores + i)));
        simd::store(scores + i, p);
        sum = simd::add_fixed_point(sum, p);
    }
    return sum;
}

// 1 / denominator; sink: minus infinity if there is none.
ISA_INLINE float norm_of(simd::i64 sum, float top, float sink) {
    const double of_sink = sink > -INFINITY ? (double) expf(sink - top) : 0.0;
    return (float) (1.0 / ((double) simd::reduce_add(sum) * 0x1p-40 + of_sink));
}

// Whether all n values, of whole vectors, are finite. Of a row's result: whether no cell has spoilt it. A hidden one
// adds 0 times its values, and that is a NaN for a NaN or an infinity.
ISA_INLINE bool all_finite(const float * x, int64_t n) {
    simd::f32 zero = simd::set1(0.0f);
    for (int64_t i = 0; i < n; i += simd::W) {
        zero = simd::fma(simd::load_f32(x + i), simd::set1(0.0f), zero);
    }
    return simd::reduce_add(zero) == 0.0f;
}

// Scores of which none is visible are minus infinities; the largest of several forgets a NaN.
ISA_INLINE bool has_nan(const float * x, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
        if (x[i] != x[i]) {
            return true;
        }
    }
    return false;
}

// A block of V, either copied as floats or as halves in the cache, with the next block prefetched.
struct v_copied {
    using type                       = float;
    static constexpr bool PREFETCHES = false;
    ISA_INLINE simd::f32 load(const float * x) { return simd::load_f32(x); }
};
struct v_in_place {
    using type                       = ggml_fp16_t;
    static constexpr bool PREFETCHES = true;
    ISA_INLINE simd::f32 load(const ggml_fp16_t * x) { return simd::load_f16(x); }
};

// out[r][C vectors] += sum over the block's cells of weights[r][c] v[c], for adjacent columns; strides in values
template <class V, int R, int C>
ISA_INLINE void value_tile(const float * weights, int64_t weights_stride, const typename V::type * v, int64_t v_stride,
    float * out, int64_t out_stride) {
    simd::f32 sums[R][C];
    for (int r = 0; r < R; ++r) {
        for (int i = 0; i < C; ++i) {
            sums[r][i] = simd::load_f32(out + r * out_stride + i * simd::W);
        }
    }
    for (int c = 0; c < BLOCK; ++c) {
        simd::f32 values[C];
        for (int i = 0; i < C; ++i) {
            values[i] = V::load(v + c * v_stride + i * simd::W);
        }
        if (V::PREFETCHES) {
            prefetch_bytes(v + (c + BLOCK) * v_stride, C * simd::W * sizeof(typename V::type));
        }
        for (int r = 0; r < R; ++r) {
            const simd::f32 weight = simd::set1(weights[r * weights_stride + c]);
            for (int i = 0; i < C; ++i) {
                sums[r][i] = simd::fma(weight, values[i], sums[r][i]);
            }
        }
    }
    for (int r = 0; r < R; ++r) {
        for (int i = 0; i < C; ++i) {
            simd::store(out + r * out_stride + i * simd::W, sums[r][i]);
        }
    }
}

// The same for all dv columns.
template <class V, int R>
ISA_INLINE void value_columns(const float * weights, int64_t weights_stride, const typename V::type * v,
    int64_t v_stride, int64_t dv, float * out, int64_t out_stride) {
    int64_t d = 0;
    for (; d + 4 * simd::W <= dv; d += 4 * simd::W) {
        value_tile<V, R, 4>(weights, weights_stride, v + d, v_stride, out + d, out_stride);
    }
    for (; d < dv; d += simd::W) {
        value_tile<V, R, 1>(weights, weights_stride, v + d, v_stride, out + d, out_stride);
    }
}

// Cells [0, n) of a block as floats, d per cell, cell after cell; zeros after the last.
ISA_FUNCTION void read_cells(ggml_type type, const char * cell, size_t cell_stride, int64_t n, int64_t d, float * out) {
    const ggml_to_float_t to_float = ggml_get_type_traits(type)->to_float;
    const size_t          bytes    = ggml_row_size(type, d);
    for (int64_t c = 0; c < n; ++c, cell += cell_stride, out += d) {
        prefetch_bytes(cell + BLOCK * cell_stride, bytes);
        if (type == GGML_TYPE_F16) {
            for (int64_t i = 0; i < d; i += simd::W) {
                simd::store(out + i, simd::load_f16((const ggml_fp16_t *) cell + i));
            }
        } else if (type == GGML_TYPE_F32) {
            std::memcpy(out, cell, d * sizeof(float));
        } else {
            to_float(cell, out, d);
        }
    }
    std::memset(out, 0, (BLOCK - n) * d * sizeof(float));
}

// Transposes BLOCK rows of 8 halves into 8 columns of BLOCK floats, column after column.
ISA_INLINE void transpose_halves(const ggml_fp16_t * in, int64_t stride, float * out) {
    simd::f16 a[8], b[8];
    for (int i = 0; i < 8; ++i) {
        a[i] = simd::load_rows_f16(in + i * stride, stride);
    }
    for (int i = 0; i < 4; ++i) {   // b[i], b[4 + i]: columns 0 to 3 and 4 to 7 of rows 2 i and 2 i + 1
        b[i]     = simd::zip_low_16(a[2 * i], a[2 * i + 1]);
        b[4 + i] = simd::zip_high_16(a[2 * i], a[2 * i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {   // a[i + 2 j + k]: columns i + 2 j and i + 2 j + 1 of rows 4 k to 4 k + 3
        for (int k = 0; k < 2; ++k) {
            a[i + k]     = simd::zip_low_32(b[i + 2 * k], b[i + 2 * k + 1]);
            a[i + 2 + k] = simd::zip_high_32(b[i + 2 * k], b[i + 2 * k + 1]);
        }
    }
    alignas(64) ggml_fp16_t column[8][BLOCK];   // halves loaded from memory become floats without a shuffle
    for (int i = 0; i < 8; i += 2) {
        simd::store_f16(column[i], simd::zip_low_64(a[i], a[i + 1]));
        simd::store_f16(column[i + 1], simd::zip_high_64(a[i], a[i + 1]));
    }
    for (int i = 0; i < 8; ++i) {
        simd::store(out + BLOCK * i, simd::load_f16(column[i]));
        simd::store(out + BLOCK * i + simd::W, simd::load_f16(column[i] + simd::W));
    }
}

// Like read_cells, but transposed: dimension after dimension, cells side by side. scratch: BLOCK * d floats.
ISA_FUNCTION void read_cells_transposed(
    ggml_type type, const char * cell, size_t cell_stride, int64_t n, int64_t d, float * scratch, float * transposed) {
    if (type == GGML_TYPE_F16 && n == BLOCK) {
        ggml_fp16_t * const copy = (ggml_fp16_t *) scratch;   // distant cells map to few sets of the first-level cache
        for (int64_t c = 0; c < BLOCK; ++c) {
            std::memcpy(copy + c * d, cell + c * cell_stride, d * sizeof(ggml_fp16_t));
        }
        for (int64_t i = 0; i < d; i += 8) {
            transpose_halves(copy + i, d, transposed + i * BLOCK);
            // prefetch the next block's cells, spread over the time of this block
            for (int64_t c = BLOCK + i * BLOCK / d; c < BLOCK + (i + 8) * BLOCK / d; ++c) {
                prefetch_bytes(cell + c * cell_stride, d * sizeof(ggml_fp16_t));
            }
        }
        return;
    }
    read_cells(type, cell, cell_stride, n, d, scratch);
    for (int64_t i = 0; i < d; i += simd::W) {
        simd::transpose(scratch + i, d, transposed + i * BLOCK, BLOCK);
        simd::transpose(scratch + simd::W * d + i, d, transposed + i * BLOCK + simd::W, BLOCK);
    }
}
