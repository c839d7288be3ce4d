// Steps of attention, with and without flash attention: the same operations in the same order for every row. Included
// once per instruction set, behind its simd_<set>.h.

constexpr int BLOCK = 2 * simd::W;   // cells

// Cells of a head lie apart: the hardware does not read ahead, and they share few sets of the first cache. So a block
// is asked into the second while the one before it is worked on.
SIMD_INLINE void ask(const void * from, size_t bytes) {
    for (size_t i = 0; i < bytes; i += 64) {
        __builtin_prefetch((const char *) from + i, 0, 2);
    }
}

// scores[r][c] = q[r] . k[c], cells side by side in a vector
template <int R> SIMD_INLINE void dot(const float * q, const float * k, int64_t dk, float * out, int64_t stride) {
    simd::f a[R], b[R];
    for (int r = 0; r < R; ++r) {
        a[r] = b[r] = simd::set1(0.0f);
    }
    for (int64_t d = 0; d < dk; ++d) {
        const simd::f k0 = simd::load(k + d * BLOCK), k1 = simd::load(k + d * BLOCK + simd::W);
        for (int r = 0; r < R; ++r) {
            const simd::f x = simd::set1(q[r * dk + d]);
            a[r]            = simd::fma(x, k0, a[r]);
            b[r]            = simd::fma(x, k1, b[r]);
        }
    }
    for (int r = 0; r < R; ++r) {
        simd::store(out + r * stride, a[r]);
        simd::store(out + r * stride + simd::W, b[r]);
    }
}

// A block of V: copied as floats, or halves in the cache, whose next block is asked for.
struct copied {
    using type                 = float;
    static constexpr bool ASKS = false;
    SIMD_INLINE simd::f load(const float * x) { return simd::load(x); }
};
struct in_place {
    using type                 = ggml_fp16_t;
    static constexpr bool ASKS = true;
    SIMD_INLINE simd::f load(const ggml_fp16_t * x) { return simd::half(x); }
};

// out[r][C vectors] += sum over the block's cells of p[r][c] v[c], columns side by side; strides in values
template <class T, int R, int C>
SIMD_INLINE void mix(
    const float * p, int64_t stride, const typename T::type * v, int64_t v_stride, float * out, int64_t out_stride) {
    simd::f sum[R][C];
    for (int r = 0; r < R; ++r) {
        for (int i = 0; i < C; ++i) {
            sum[r][i] = simd::load(out + r * out_stride + i * simd::W);
        }
    }
    for (int c = 0; c < BLOCK; ++c) {
        simd::f x[C];
        for (int i = 0; i < C; ++i) {
            x[i] = T::load(v + c * v_stride + i * simd::W);
        }
        if (T::ASKS) {
            ask(v + (c + BLOCK) * v_stride, C * simd::W * sizeof(typename T::type));
        }
        for (int r = 0; r < R; ++r) {
            const simd::f w = simd::set1(p[r * stride + c]);
            for (int i = 0; i < C; ++i) {
                sum[r][i] = simd::fma(w, x[i], sum[r][i]);
            }
        }
    }
    for (int r = 0; r < R; ++r) {
        for (int i = 0; i < C; ++i) {
            simd::store(out + r * out_stride + i * simd::W, sum[r][i]);
        }
    }
}

template <class T, int R>
SIMD_INLINE void mix_columns(const float * p, int64_t stride, const typename T::type * v, int64_t v_stride, int64_t dv,
    float * out, int64_t out_stride) {
    int64_t d = 0;
    for (; d + 4 * simd::W <= dv; d += 4 * simd::W) {
        mix<T, R, 4>(p, stride, v + d, v_stride, out + d, out_stride);
    }
    for (; d < dv; d += simd::W) {
        mix<T, R, 1>(p, stride, v + d, v_stride, out + d, out_stride);
    }
}

// Cells [0, n) of a block as floats, one after the other; zeros behind them.
SIMD void read_cells(ggml_type type, const char * cell, size_t stride, int64_t n, int64_t d, float * out) {
    const ggml_to_float_t to_float = ggml_get_type_traits(type)->to_float;
    const size_t          bytes    = ggml_row_size(type, d);
    for (int64_t c = 0; c < n; ++c, cell += stride, out += d) {
        ask(cell + BLOCK * stride, bytes);
        if (type == GGML_TYPE_F16) {
            for (int64_t i = 0; i < d; i += simd::W) {
                simd::store(out + i, simd::half((const ggml_fp16_t *) cell + i));
            }
        } else if (type == GGML_TYPE_F32) {
            std::memcpy(out, cell, d * sizeof(float));
        } else {
            to_float(cell, out, d);
        }
    }
    std::memset(out, 0, (BLOCK - n) * d * sizeof(float));
}

// BLOCK rows of 8 halves into 8 columns of BLOCK floats, one after the other.
SIMD_INLINE void turn_halves(const ggml_fp16_t * in, int64_t stride, float * out) {
    simd::h a[8], b[8];
    for (int i = 0; i < 8; ++i) {
        a[i] = simd::rows(in + i * stride, stride);
    }
    for (int i = 0; i < 4; ++i) {   // b[i], b[4 + i]: columns 0 to 3 and 4 to 7 of rows 2 i and 2 i + 1
        b[i]     = simd::low_16(a[2 * i], a[2 * i + 1]);
        b[4 + i] = simd::high_16(a[2 * i], a[2 * i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {   // a[i + 2 j + k]: columns i + 2 j and i + 2 j + 1 of rows 4 k to 4 k + 3
        for (int k = 0; k < 2; ++k) {
            a[i + k]     = simd::low_32(b[i + 2 * k], b[i + 2 * k + 1]);
            a[i + 2 + k] = simd::high_32(b[i + 2 * k], b[i + 2 * k + 1]);
        }
    }
    alignas(64) ggml_fp16_t column[8][BLOCK];   // out of memory halves become floats without a shuffle
    for (int i = 0; i < 8; i += 2) {
        simd::store_halves(column[i], simd::low_64(a[i], a[i + 1]));
        simd::store_halves(column[i + 1], simd::high_64(a[i], a[i + 1]));
    }
    for (int i = 0; i < 8; ++i) {
        simd::store(out + BLOCK * i, simd::half(column[i]));
        simd::store(out + BLOCK * i + simd::W, simd::half(column[i] + simd::W));
    }
}

// The same as read_cells, turned: dimension by dimension, cells side by side. scratch: BLOCK * d floats.
SIMD void read_turned(
    ggml_type type, const char * cell, size_t stride, int64_t n, int64_t d, float * scratch, float * turned) {
    if (type == GGML_TYPE_F16 && n == BLOCK) {
        ggml_fp16_t * const copy = (ggml_fp16_t *) scratch;   // cells that lie apart share few sets of the first cache
        for (int64_t c = 0; c < BLOCK; ++c) {
            std::memcpy(copy + c * d, cell + c * stride, d * sizeof(ggml_fp16_t));
        }
        for (int64_t i = 0; i < d; i += 8) {
            turn_halves(copy + i, d, turned + i * BLOCK);
            for (int64_t c = BLOCK + i * BLOCK / d; c < BLOCK + (i + 8) * BLOCK / d;
                ++c) {   // spread over the time that this block takes
                ask(cell + c * stride, d * sizeof(ggml_fp16_t));
            }
        }
        return;
    }
    read_cells(type, cell, stride, n, d, scratch);
    for (int64_t i = 0; i < d; i += simd::W) {
        simd::transpose(scratch + i, d, turned + i * BLOCK, BLOCK);
        simd::transpose(scratch + simd::W * d + i, d, turned + i * BLOCK + simd::W, BLOCK);
    }
}
