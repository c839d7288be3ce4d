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

// R rows and C columns, starting at row `first` and column c.
template <class T, int R, int C> ISA_INLINE void float_tile(const float_gemm_call & call, int64_t first, int64_t c) {
    const float * const *    x   = call.x + first;
    float * const *          out = call.out + first;
    const int64_t            k   = call.k;
    const typename T::type * w[C];
    simd::f32                sums[R][C];
    for (int i = 0; i < C; ++i) {
        w[i] = (const typename T::type *) (call.weights + (c + i) * call.stride);
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

// Columns from c to end.
template <class T, int R, int C>
ISA_INLINE void float_columns(const float_gemm_call & call, int64_t first, int64_t c, int64_t end) {
    for (; c + C <= end; c += C) {
        float_tile<T, R, C>(call, first, c);
    }
    for (; c < end; ++c) {
        float_tile<T, R, 1>(call, first, c);
    }
}

template <class T> ISA_FUNCTION void float_gemm_of(const float_gemm_call & call) {
    const int64_t n_rows = call.n_rows;
    for (int64_t c = call.begin; c < call.end; c += 8) {   // so few columns stay in the L1 cache for all rows
        const int64_t end = std::min(call.end, c + 8);
        int64_t       r   = 0;
        for (; r + 4 <= n_rows; r += 4) {
            float_columns<T, 4, simd::ROWS / 2>(call, r, c, end);
        }
        switch (n_rows - r) {
            case 3: float_columns<T, 3, 4>(call, r, c, end); break;
            case 2: float_columns<T, 2, 4>(call, r, c, end); break;
            case 1: float_columns<T, 1, 8>(call, r, c, end); break;
        }
    }
}

ISA_FUNCTION void float_gemm(const float_gemm_call & call) {
    (call.type == GGML_TYPE_F32      ? float_gemm_of<f32_weights>
        : call.type == GGML_TYPE_F16 ? float_gemm_of<f16_weights>
                                     : float_gemm_of<bf16_weights>) (call);
}
