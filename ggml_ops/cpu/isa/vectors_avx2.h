// AVX2 with FMA and F16C (simd.h)

#define SIMD        __attribute__((target("avx2,f16c,fma"))) static
#define SIMD_INLINE __attribute__((target("avx2,f16c,fma"), always_inline)) static inline

struct simd {
    using f                = __m256;
    using integers         = __m256i;
    using h                = __m256i;
    static constexpr int W = 8, ROWS = 4;

    SIMD_INLINE f load(const float * x) { return _mm256_loadu_ps(x); }
    SIMD_INLINE f half(const ggml_fp16_t * x) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *) x)); }
    SIMD_INLINE f bfloat(const uint16_t * x) {
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *) x)), 16));
    }
    SIMD_INLINE void  store(float * x, f y) { _mm256_storeu_ps(x, y); }
    SIMD_INLINE f     set1(float x) { return _mm256_set1_ps(x); }
    SIMD_INLINE f     mul(f a, f b) { return _mm256_mul_ps(a, b); }
    SIMD_INLINE f     fma(f a, f b, f c) { return _mm256_fmadd_ps(a, b, c); }
    SIMD_INLINE f     max(f a, f b) { return _mm256_max_ps(a, b); }
    SIMD_INLINE float greatest(f a) {
        const __m128 x = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1)),
                     y = _mm_max_ps(x, _mm_movehl_ps(x, x));
        return _mm_cvtss_f32(_mm_max_ss(y, _mm_shuffle_ps(y, y, 1)));
    }
    SIMD_INLINE float sum(f a) {
        const __m128 x = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1)),
                     y = _mm_add_ps(x, _mm_movehl_ps(x, x));
        return _mm_cvtss_f32(_mm_add_ss(y, _mm_shuffle_ps(y, y, 1)));
    }
    SIMD_INLINE integers zero() { return _mm256_setzero_si256(); }
    SIMD_INLINE int64_t  total(integers a) {
        alignas(32) int64_t x[4];
        _mm256_store_si256((__m256i *) x, a);
        return x[0] + x[1] + x[2] + x[3];
    }
    SIMD_INLINE integers rounded(integers sum, __m128 p) {   // a double of this size holds its integer in the low bits
        const __m256d magic = _mm256_set1_pd(0x1.8p52);
        const __m256d x     = _mm256_add_pd(_mm256_mul_pd(_mm256_cvtps_pd(p), _mm256_set1_pd(0x1p40)), magic);
        return _mm256_add_epi64(sum, _mm256_sub_epi64(_mm256_castpd_si256(x), _mm256_castpd_si256(magic)));
    }
    SIMD_INLINE integers fixed(integers sum, f p) {
        return rounded(rounded(sum, _mm256_castps256_ps128(p)), _mm256_extractf128_ps(p, 1));
    }
    SIMD_INLINE f exp(f x) {
        const f       big = _mm256_cmp_ps(x, set1(-87.0f), _CMP_GE_OQ);
        const f       n = _mm256_round_ps(mul(x, set1(0x1.715476p+0f)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        const f       r = fma(n, set1(-0x1.7f7d1cp-20f), fma(n, set1(-0x1.62e4p-1f), x));
        const __m256i power = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
        return _mm256_and_ps(big, mul(DFLASH_EXP_POLYNOMIAL(fma, set1, r), _mm256_castsi256_ps(power)));
    }
    SIMD_INLINE void transpose(const float * in, int64_t in_stride, float * out, int64_t out_stride) {
        __m256 a[8], b[8];
        for (int i = 0; i < 8; ++i) {
            a[i] = load(in + i * in_stride);
        }
        for (int i = 0; i < 8; i += 2) {
            b[i]     = _mm256_unpacklo_ps(a[i], a[i + 1]);
            b[i + 1] = _mm256_unpackhi_ps(a[i], a[i + 1]);
        }
        for (int i = 0; i < 8; i += 4) {   // a[i + j]: column 4 * lane + j of rows i .. i + 3
            for (int j = 0; j < 2; ++j) {
                a[i + 2 * j]     = _mm256_shuffle_ps(b[i + j], b[i + 2 + j], 0x44);
                a[i + 2 * j + 1] = _mm256_shuffle_ps(b[i + j], b[i + 2 + j], 0xee);
            }
        }
        for (int j = 0; j < 4; ++j) {
            store(out + j * out_stride, _mm256_permute2f128_ps(a[j], a[4 + j], 0x20));
            store(out + (j + 4) * out_stride, _mm256_permute2f128_ps(a[j], a[4 + j], 0x31));
        }
    }
    SIMD_INLINE h rows(const ggml_fp16_t * in, int64_t stride) {
        return _mm256_loadu2_m128i((const __m128i *) (in + 8 * stride), (const __m128i *) in);
    }
    SIMD_INLINE h    low_16(h a, h b) { return _mm256_unpacklo_epi16(a, b); }
    SIMD_INLINE h    high_16(h a, h b) { return _mm256_unpackhi_epi16(a, b); }
    SIMD_INLINE h    low_32(h a, h b) { return _mm256_unpacklo_epi32(a, b); }
    SIMD_INLINE h    high_32(h a, h b) { return _mm256_unpackhi_epi32(a, b); }
    SIMD_INLINE h    low_64(h a, h b) { return _mm256_unpacklo_epi64(a, b); }
    SIMD_INLINE h    high_64(h a, h b) { return _mm256_unpackhi_epi64(a, b); }
    SIMD_INLINE void store_halves(ggml_fp16_t * x, h y) { _mm256_storeu_si256((__m256i *) x, y); }
};
