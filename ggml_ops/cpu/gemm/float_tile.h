// Products with float weights (dense.h). Included once per instruction set, behind its simd_<set>.h.

struct as_f32 {
    using type = float;
    SIMD_INLINE simd::f load(const type * x) { return simd::load(x); }
};
struct as_f16 {
    using type = ggml_fp16_t;
    SIMD_INLINE simd::f load(const type * x) { return simd::half(x); }
};
struct as_bf16 {
    using type = uint16_t;
    SIMD_INLINE simd::f load(const type * x) { return simd::bfloat(x); }
};

template <class T, int R, int C>
SIMD_INLINE void tile(
    const char * weights, size_t stride, int64_t k, int64_t c, const float * const * x, float * const * out) {
    const typename T::type * w[C];
    simd::f                  sums[R][C];
    for (int i = 0; i < C; ++i) {
        w[i] = (const typename T::type *) (weights + (c + i) * stride);
        for (int r = 0; r < R; ++r) {
            sums[r][i] = simd::set1(0.0f);
        }
    }
    for (int64_t j = 0; j < k; j += simd::W) {
        simd::f a[R];
        for (int r = 0; r < R; ++r) {
            a[r] = simd::load(x[r] + j);
        }
        for (int i = 0; i < C; ++i) {
            const simd::f b = T::load(w[i] + j);
            for (int r = 0; r < R; ++r) {
                sums[r][i] = simd::fma(a[r], b, sums[r][i]);
            }
        }
    }
    for (int r = 0; r < R; ++r) {
        for (int i = 0; i < C; ++i) {
            out[r][c + i] = simd::sum(sums[r][i]);
        }
    }
}

template <class T, int R, int C>
SIMD_INLINE void columns(const char * weights, size_t stride, int64_t k, int64_t c0, int64_t c1,
    const float * const * x, float * const * out) {
    int64_t c = c0;
    for (; c + C <= c1; c += C) {
        tile<T, R, C>(weights, stride, k, c, x, out);
    }
    for (; c < c1; ++c) {
        tile<T, R, 1>(weights, stride, k, c, x, out);
    }
}

template <class T>
SIMD void product(const char * weights, size_t stride, int64_t k, int64_t c0, int64_t c1, const float * const * x,
    int64_t rows, float * const * out) {
    for (int64_t c = c0; c < c1; c += 8) {   // columns that stay in the first-level cache for all rows
        const int64_t end = c + 8 < c1 ? c + 8 : c1;
        int64_t       r   = 0;
        for (; r + 4 <= rows; r += 4) {
            columns<T, 4, simd::ROWS / 2>(weights, stride, k, c, end, x + r, out + r);
        }
        if (rows - r == 3) {
            columns<T, 3, 4>(weights, stride, k, c, end, x + r, out + r);
            r += 3;
        }
        for (; r + 2 <= rows; r += 2) {
            columns<T, 2, 4>(weights, stride, k, c, end, x + r, out + r);
        }
        for (; r < rows; ++r) {
            columns<T, 1, 8>(weights, stride, k, c, end, x + r, out + r);
        }
    }
}

SIMD void run(ggml_type type, const char * weights, size_t stride, int64_t k, int64_t c0, int64_t c1,
    const float * const * x, int64_t rows, float * const * out) {
    (type == GGML_TYPE_F32      ? product<as_f32>
        : type == GGML_TYPE_F16 ? product<as_f16>
                                : product<as_bf16>) (weights, stride, k, c0, c1, x, rows, out);
}
