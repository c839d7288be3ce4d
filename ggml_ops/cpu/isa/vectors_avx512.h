// AVX-512 (simd.h)

#define SIMD        __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,f16c,fma"))) static
#define SIMD_INLINE __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,f16c,fma"), always_inline)) static inline

struct simd {
    using f                = __m512;
    using integers         = __m512i;
    using h                = __m512i;
    static constexpr int W = 16, ROWS = 8;

    SIMD_INLINE f load(const float * x) { return _mm512_loadu_ps(x); }
    SIMD_INLINE f half(const ggml_fp16_t * x) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *) x)); }
    SIMD_INLINE f bfloat(const uint16_t * x) {
        return _mm512_castsi512_ps(
            _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *) x)), 16));
    }
    SIMD_INLINE void     store(float * x, f y) { _mm512_storeu_ps(x, y); }
    SIMD_INLINE f        set1(float x) { return _mm512_set1_ps(x); }
    SIMD_INLINE f        mul(f a, f b) { return _mm512_mul_ps(a, b); }
    SIMD_INLINE f        fma(f a, f b, f c) { return _mm512_fmadd_ps(a, b, c); }
    SIMD_INLINE f        max(f a, f b) { return _mm512_max_ps(a, b); }
    SIMD_INLINE float    greatest(f a) { return _mm512_reduce_max_ps(a); }
    SIMD_INLINE float    sum(f a) { return _mm512_reduce_add_ps(a); }
    SIMD_INLINE integers zero() { return _mm512_setzero_si512(); }
    SIMD_INLINE int64_t  total(integers a) { return _mm512_reduce_add_epi64(a); }
    SIMD_INLINE integers fixed(integers sum, f p) {
        const f scaled = mul(p, set1(0x1p40f));
        return _mm512_add_epi64(sum, _mm512_add_epi64(_mm512_cvtps_epi64(_mm512_castps512_ps256(scaled)),
                                         _mm512_cvtps_epi64(_mm512_extractf32x8_ps(scaled, 1))));
    }
    SIMD_INLINE f exp(f x) {
        const __mmask16 big = _mm512_cmp_ps_mask(x, set1(-87.0f), _CMP_GE_OQ);
        const f n = _mm512_roundscale_ps(mul(x, set1(0x1.715476p+0f)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        const f r = fma(n, set1(-0x1.7f7d1cp-20f), fma(n, set1(-0x1.62e4p-1f), x));
        return _mm512_maskz_scalef_ps(big, DFLASH_EXP_POLYNOMIAL(fma, set1, r), n);
    }
    SIMD_INLINE void transpose(const float * in, int64_t in_stride, float * out, int64_t out_stride) {
        __m512 a[16], b[16];
        for (int i = 0; i < 16; ++i) {
            a[i] = load(in + i * in_stride);
        }
        for (int i = 0; i < 16; i += 2) {
            b[i]     = _mm512_unpacklo_ps(a[i], a[i + 1]);
            b[i + 1] = _mm512_unpackhi_ps(a[i], a[i + 1]);
        }
        for (int i = 0; i < 16; i += 4) {   // a[i + j]: column 4 * lane + j of rows i .. i + 3
            for (int j = 0; j < 2; ++j) {
                const __m512d lo = _mm512_castps_pd(b[i + j]), hi = _mm512_castps_pd(b[i + 2 + j]);
                a[i + 2 * j]     = _mm512_castpd_ps(_mm512_unpacklo_pd(lo, hi));
                a[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(lo, hi));
            }
        }
        for (int j = 0; j < 4; ++j) {
            const __m512 even0 = _mm512_shuffle_f32x4(a[j], a[4 + j], 0x88),
                         odd0  = _mm512_shuffle_f32x4(a[j], a[4 + j], 0xdd);
            const __m512 even1 = _mm512_shuffle_f32x4(a[8 + j], a[12 + j], 0x88),
                         odd1  = _mm512_shuffle_f32x4(a[8 + j], a[12 + j], 0xdd);
            store(out + (j + 0) * out_stride, _mm512_shuffle_f32x4(even0, even1, 0x88));
            store(out + (j + 4) * out_stride, _mm512_shuffle_f32x4(odd0, odd1, 0x88));
            store(out + (j + 8) * out_stride, _mm512_shuffle_f32x4(even0, even1, 0xdd));
            store(out + (j + 12) * out_stride, _mm512_shuffle_f32x4(odd0, odd1, 0xdd));
        }
    }
    SIMD_INLINE h rows(const ggml_fp16_t * in, int64_t stride) {
        const auto eight = [&](int row) { return _mm_loadu_si128((const __m128i *) (in + row * stride)); };
        return _mm512_inserti32x4(
            _mm512_inserti32x4(_mm512_inserti32x4(_mm512_castsi128_si512(eight(0)), eight(8), 1), eight(16), 2),
            eight(24), 3);
    }
    SIMD_INLINE h    low_16(h a, h b) { return _mm512_unpacklo_epi16(a, b); }
    SIMD_INLINE h    high_16(h a, h b) { return _mm512_unpackhi_epi16(a, b); }
    SIMD_INLINE h    low_32(h a, h b) { return _mm512_unpacklo_epi32(a, b); }
    SIMD_INLINE h    high_32(h a, h b) { return _mm512_unpackhi_epi32(a, b); }
    SIMD_INLINE h    low_64(h a, h b) { return _mm512_unpacklo_epi64(a, b); }
    SIMD_INLINE h    high_64(h a, h b) { return _mm512_unpackhi_epi64(a, b); }
    SIMD_INLINE void store_halves(ggml_fp16_t * x, h y) { _mm512_storeu_si512(x, y); }
};
