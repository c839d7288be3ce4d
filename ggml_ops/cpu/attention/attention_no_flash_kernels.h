// The kernels of attention_no_flash.h. Included by isa/<set>.cpp after its vectors and attention_blocks.h.

ISA_FUNCTION void transpose_k(
    ggml_type type, const char * k, size_t cell_stride, int64_t n, int64_t dk, float * scratch, float * transposed) {
    for (int64_t first = 0; first < n; first += BLOCK, transposed += BLOCK * dk) {
        read_cells_transposed(
            type, k + first * cell_stride, cell_stride, n - first < BLOCK ? n - first : BLOCK, dk, scratch, transposed);
    }
}

// Scores of n <= BLOCK cells, for R queries together.
template <int R>
ISA_INLINE void score_block(
    int64_t n_queries, const float * q, const float * k, int64_t dk, int64_t n, float * scores, int64_t scores_stride) {
    int64_t i = 0;
    for (; i + R <= n_queries; i += R) {
        if (n == BLOCK) {
            score_rows<R>(q + i * dk, k, dk, scores + i * scores_stride, scores_stride);
            continue;
        }
        float tile[R * BLOCK];
        score_rows<R>(q + i * dk, k, dk, tile, BLOCK);
        for (int r = 0; r < R; ++r) {
            std::memcpy(scores + (i + r) * scores_stride, tile + r * BLOCK, n * sizeof(float));
        }
    }
    if constexpr (R > 1) {
        score_block<R / 2>(n_queries - i, q + i * dk, k, dk, n, scores + i * scores_stride, scores_stride);
    }
}

ISA_FUNCTION void multiply_q_k(const float * transposed, int64_t n, int64_t dk, const float * q, int64_t n_queries,
    float * scores, int64_t scores_stride) {
    for (int64_t first = 0; first < n; first += BLOCK) {
        score_block<simd::ROWS>(n_queries, q, transposed + first * dk, dk, n - first < BLOCK ? n - first : BLOCK,
            scores + first, scores_stride);
    }
}

ISA_FUNCTION void softmax(const float * x, float * out, int64_t n, float scale, float slope,
    const ggml_fp16_t * mask_f16, const float * mask_f32, float sink) {
    const int64_t whole = n / simd::W * simd::W, rest = n - whole;
    const bool    has_mask = mask_f16 || mask_f32;
    float         last[simd::W];   // the cells after the last whole vector, padded with hidden ones
    for (int i = 0; i < simd::W; ++i) {
        last[i] = -INFINITY;
        if (i < rest) {
            const float     bias = mask_f16   ? ggml_fp16_to_fp32(mask_f16[whole + i])
                                   : mask_f32 ? mask_f32[whole + i]
                                              : 0.0f;
            const simd::f32 y    = simd::mul(simd::set1(x[whole + i]), simd::set1(scale));
            float           copies[simd::W];
            simd::store(copies, has_mask ? masked(y, simd::set1(bias), slope) : y);
            last[i] = copies[0];
        }
    }
    simd::f32 maximum = simd::load_f32(last);
    for (int64_t i = 0; i < whole; i += simd::W) {
        simd::f32 y = simd::mul(simd::load_f32(x + i), simd::set1(scale));
        if (has_mask) {
            y = masked(y, mask_f16 ? simd::load_f16(mask_f16 + i) : simd::load_f32(mask_f32 + i), slope);
        }
        simd::store(out + i, y);
        maximum = simd::max(maximum, y);
    }
    float top = simd::reduce_max(maximum);
    top       = sink > top ? sink : top;
    if (top == -INFINITY && !has_nan(out, whole) && !has_nan(last, simd::W)) {   // no visible cell
        std::memset(out, 0, n * sizeof(float));
        return;
    }
    const simd::i64 sum  = exponentials(last, simd::W, top, exponentials(out, whole, top, simd::zero_i64()));
    const simd::f32 norm = simd::set1(norm_of(sum, top, sink));
    for (int64_t i = 0; i < whole; i += simd::W) {
        simd::store(out + i, simd::mul(simd::load_f32(out + i), norm));
    }
    simd::store(last, simd::mul(simd::load_f32(last), norm));
    std::memcpy(out + whole, last, rest * sizeof(float));
}

ISA_INLINE size_t value_size_of(ggml_type type) { return type == GGML_TYPE_F32 ? 4 : 2; }

// Cells [0, n) of a column of V as floats, followed by zeros.
ISA_INLINE void read_column(ggml_type type, const char * v, int64_t n, float * out) {
    if (n < BLOCK) {
        if (type == GGML_TYPE_F32) {
            std::memcpy(out, v, n * sizeof(float));
        } else {
            ggml_get_type_traits(type)->to_float(v, out, n);
        }
        std::memset(out + n, 0, (BLOCK - n) * sizeof(float));
        return;
    }
    for (int i = 0; i < BLOCK; i += simd::W) {
        simd::store(out + i, type == GGML_TYPE_F32   ? simd::load_f32((const float *) v + i)
                             : type == GGML_TYPE_F16 ? simd::load_f16((const ggml_fp16_t *) v + i)
                                                     : simd::load_bf16((const uint16_t *) v + i));
    }
}

// A block of n cells of V as floats, cell after cell; scratch: [simd::W][BLOCK]
ISA_INLINE void read_values(
    ggml_type type, const char * v, size_t column_stride, int64_t n, int64_t dv, float * scratch, float * values) {
    const size_t value_size = value_size_of(type);
    for (int64_t d = 0; d < dv; d += simd::W) {
        for (int i = 0; i < simd::W; ++i) {
            const char * const column = v + (d + i) * column_stride;
            __builtin_prefetch(column + 2 * BLOCK * value_size);   // too many columns for the hardware to prefetch
            read_column(type, column, n, scratch + i * BLOCK);
        }
        simd::transpose(scratch, BLOCK, values + d, dv);
        simd::transpose(scratch + simd::W, BLOCK, values + simd::W * dv + d, dv);
    }
}

// Whether any cell of a block has a nonzero weight.
ISA_INLINE bool has_weight(const float * weights) {
    uint64_t bits = 0;
    for (int i = 0; i < BLOCK; i += 2) {
        uint64_t two;
        std::memcpy(&two, weights + i, sizeof(two));
        bits |= two;
    }
    return bits != 0;
}

// Adds the weighted values of a block for all queries. R queries are computed together if the block matters to any of
// them.
template <int R>
ISA_INLINE void weigh_block(int64_t n_queries, const bool * counts, const float * weights, int64_t weights_stride,
    const float * v, int64_t dv, float * out, int64_t out_stride) {
    int64_t i = 0;
    for (; i + R <= n_queries; i += R) {
        bool any = false;
        for (int r = 0; r < R; ++r) {
            any |= counts[i + r];
        }
        if (any) {
            value_columns<v_copied, R>(
                weights + i * weights_stride, weights_stride, v, dv, dv, out + i * out_stride, out_stride);
        }
    }
    if constexpr (R > 1) {
        weigh_block<R / 2>(n_queries - i, counts + i, weights + i * weights_stride, weights_stride, v, dv,
            out + i * out_stride, out_stride);
    }
}

// All queries; n_queries <= MAX_WEIGHTED_QUERIES.
ISA_FUNCTION void weigh_all(ggml_type type, const char * v, size_t column_stride, int64_t n, int64_t dv,
    const float * weights, int64_t n_queries, int64_t weights_stride, float * out, int64_t out_stride,
    float * scratch) {
    float *const columns = scratch, *const transposed = columns + simd::W * BLOCK,
                 *const padded = transposed + BLOCK * dv;   // weights of the last block
    bool                counts[MAX_WEIGHTED_QUERIES];       // whether the block matters, per query
    for (int64_t i = 0; i < n_queries; ++i) {
        std::memset(out + i * out_stride, 0, dv * sizeof(float));
    }
    for (int64_t first = 0; first < n; first += BLOCK, weights += BLOCK, v += BLOCK * value_size_of(type)) {
        const int64_t n_cells = n - first < BLOCK ? n - first : BLOCK;
        if (n_cells < BLOCK) {
            std::memset(padded, 0, n_queries * BLOCK * sizeof(float));
            for (int64_t i = 0; i < n_queries; ++i) {
                std::memcpy(padded + i * BLOCK, weights + i * weights_stride, n_cells * sizeof(float));
            }
            weights        = padded;
            weights_stride = BLOCK;
        }
        bool any = false;
        for (int64_t i = 0; i < n_queries; ++i) {
            any |= counts[i] = has_weight(weights + i * weights_stride);
        }
        if (!any) {
            continue;
        }
        read_values(type, v, column_stride, n_cells, dv, columns, transposed);
        weigh_block<simd::ROWS / 2>(n_queries, counts, weights, weights_stride, transposed, dv, out, out_stride);
    }
}

// The same of one query without the cells of weight 0: the same sums, unless such a cell spoils them.
ISA_FUNCTION void weigh_visible(ggml_type type, const char * v, size_t column_stride, int64_t n, int64_t dv,
    const float * weights, float * out, float * scratch) {
    float *const columns = scratch, *const values = columns + simd::W * BLOCK;
    std::memset(out, 0, dv * sizeof(float));
    for (int64_t first = 0; first < n; first += BLOCK, v += BLOCK * value_size_of(type)) {
        const int64_t n_cells      = n - first < BLOCK ? n - first : BLOCK;
        float         block[BLOCK] = {};
        std::memcpy(block, weights + first, n_cells * sizeof(float));
        if (!has_weight(block)) {
            continue;
        }
        read_values(type, v, column_stride, n_cells, dv, columns, values);
        for (int64_t c = 0; c < n_cells; ++c) {
            if (block[c] == 0.0f) {
                std::memset(values + c * dv, 0, dv * sizeof(float));
            }
        }
        value_columns<v_copied, 1>(block, BLOCK, values, dv, dv, out, dv);
    }
}

ISA_FUNCTION void multiply_weights_v(ggml_type type, const char * v, size_t column_stride, int64_t n, int64_t dv,
    const float * weights, int64_t n_queries, int64_t weights_stride, float * out, int64_t out_stride,
    float * scratch) {
    weigh_all(type, v, column_stride, n, dv, weights, n_queries, weights_stride, out, out_stride, scratch);
    for (int64_t i = 0; i < n_queries; ++i) {
        if (!all_finite(out + i * out_stride, dv)) {
            weigh_visible(type, v, column_stride, n, dv, weights + i * weights_stride, out + i * out_stride, scratch);
        }
    }
}
