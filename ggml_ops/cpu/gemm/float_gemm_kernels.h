// The kernel of float_gemm.h. Included by isa/<set>.cpp after its vectors.

struct f32_weights {
    using type = float;
    ISA_INLINE simd::f32 load(const type * x) { return simd::load_f32(x); }
};
struct f16_weights {
    using type = ggml_fp16_t;
    ISA_INLINE simd::f32 load(const type * x) { return simd::load_f16(x); }
};
struct bf16_weights {
    using type = uint16_t;
    ISA_INLINE simd::f32 load(const type * x) { return simd::load_bf16(x); }
};

// R rows and C columns, starting at column c.
template <class T, int R, int C>
ISA_INLINE void float_tile(
    const char * weights, size_t stride, int64_t k, int64_t c, const float * const * x, float * const * out) {
    const typename T::type * w[C];
    simd::f32                sums[R][C];
    for (int i = 0; i < C; ++i) {
        w[i] = (const typename T::type *) (weights + (c + i) * stride);
        for (int r = 0; r < R; ++r) {
            sums[r][i] = simd::set1(0.0f);
        }
    }
    for (int64_t j = 0; j < k; j += simd::W) {
        simd::f32 a[R];
        for (int r = 0; r < R; ++r) {
            a[r] = simd::load_f32(x[r] + j);
        }
        for (int i = 0; i < C; ++i) {
            const simd::f32 b = T::load(w[i] + j);
            for (int r = 0; r < R; ++r) {
                sums[r][i] = simd::fma(a[r], b, sums[r][i]);
            }
        }
    }
    for (int r = 0; r < R; ++r) {
        for (int i = 0; i < C; ++i) {
            out[r][c + i] = simd::reduce_add(sums[r][i]);
        }
    }
}

template <class T, int R, int C>
ISA_INLINE void float_columns(const char * weights, size_t stride, int64_t k, int64_t begin, int64_t end,
    const float * const * x, float * const * out) {
    int64_t c = begin;
    for (; c + C <= end; c += C) {
        float_tile<T, R, C>(weights, stride, k, c, x, out);
    }
    for (; c < end; ++c) {
        float_tile<T, R, 1>(weights, stride, k, c, x, out);
    }
}

template <class T>
ISA_FUNCTION void float_gemm_of(const char * weights, size_t stride, int64_t k, int64_t begin, int64_t end,
    const float * const * x, int64_t n_rows, float * const * out) {
    for (int64_t c = begin; c < end; c += 8) {   // so few columns stay in the L1 cache for all rows
        const int64_t c_end = c + 8 < end ? c + 8 : end;
        int64_t       r     = 0;
        for (; r + 4 <= n_rows; r += 4) {
            float_columns<T, 4, simd::ROWS / 2>(weights, stride, k, c, c_end, x + r, out + r);
        }
        if (n_rows - r == 3) {
            float_columns<T, 3, 4>(weights, stride, k, c, c_end, x + r, out + r);
            r += 3;
        }
        for (; r + 2 <= n_rows; r += 2) {
            float_columns<T, 2, 4>(weights, stride, k, c, c_end, x + r, out + r);
        }
        for (; r < n_rows; ++r) {
            float_columns<T, 1, 8>(weights, stride, k, c, c_end, x + r, out + r);
        }
    }
}

ISA_FUNCTION void float_gemm(ggml_type type, const char * weights, size_t stride, int64_t k, int64_t begin, int64_t end,
    const float * const * x, int64_t n_rows, float * const * out) {
    (type == GGML_TYPE_F32      ? float_gemm_of<f32_weights>
        : type == GGML_TYPE_F16 ? float_gemm_of<f16_weights>
                                : float_gemm_of<bf16_weights>) (weights, stride, k, begin, end, x, n_rows, out);
}
