// Attention tiles for AVX-512 and for AVX2, chosen at run time.

#include "attention.h"

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))

#include <immintrin.h>

#include <cmath>
#include <cstring>

namespace dflash {

namespace {

// exp(x) = 2^n e^r, |r| <= ln 2 / 2: a polynomial fitted for the least relative error (1.4 units of 2^-24)
#define EXP_POLYNOMIAL(fma, set1, r)                                                                                                                  \
    fma(fma(fma(fma(fma(fma(set1(0x1.6a2352p-10f), r, set1(0x1.123a6cp-7f)), r, set1(0x1.5558f4p-5f)), r, set1(0x1.555490p-3f)), r, set1(0x1.fffffcp-2f)), \
            r, set1(1.0f)), r, set1(1.0f))

namespace avx512 {

#define SIMD        __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,f16c,fma"))) static
#define SIMD_INLINE __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,f16c,fma"), always_inline)) static inline

struct simd {
    using f = __m512;
    using integers = __m512i;
    static constexpr int W = 16, ROWS = 8;

    SIMD_INLINE f load(const float * x) { return _mm512_loadu_ps(x); }
    SIMD_INLINE f half(const ggml_fp16_t * x) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *) x)); }
    SIMD_INLINE void store(float * x, f y) { _mm512_storeu_ps(x, y); }
    SIMD_INLINE f set1(float x) { return _mm512_set1_ps(x); }
    SIMD_INLINE f mul(f a, f b) { return _mm512_mul_ps(a, b); }
    SIMD_INLINE f fma(f a, f b, f c) { return _mm512_fmadd_ps(a, b, c); }
    SIMD_INLINE f max(f a, f b) { return _mm512_max_ps(a, b); }
    SIMD_INLINE float greatest(f a) { return _mm512_reduce_max_ps(a); }
    SIMD_INLINE integers zero() { return _mm512_setzero_si512(); }
    SIMD_INLINE int64_t total(integers a) { return _mm512_reduce_add_epi64(a); }
    SIMD_INLINE integers fixed(integers sum, f p) {
        const f scaled = mul(p, set1(0x1p40f));
        return _mm512_add_epi64(sum, _mm512_add_epi64(_mm512_cvtps_epi64(_mm512_castps512_ps256(scaled)), _mm512_cvtps_epi64(_mm512_extractf32x8_ps(scaled, 1))));
    }
    SIMD_INLINE f exp(f x) {
        const __mmask16 big = _mm512_cmp_ps_mask(x, set1(-87.0f), _CMP_GE_OQ);
        const f n = _mm512_roundscale_ps(mul(x, set1(0x1.715476p+0f)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        const f r = fma(n, set1(-0x1.7f7d1cp-20f), fma(n, set1(-0x1.62e4p-1f), x));
        return _mm512_maskz_scalef_ps(big, EXP_POLYNOMIAL(fma, set1, r), n);
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
            const __m512 even0 = _mm512_shuffle_f32x4(a[j], a[4 + j], 0x88), odd0 = _mm512_shuffle_f32x4(a[j], a[4 + j], 0xdd);
            const __m512 even1 = _mm512_shuffle_f32x4(a[8 + j], a[12 + j], 0x88), odd1 = _mm512_shuffle_f32x4(a[8 + j], a[12 + j], 0xdd);
            store(out + (j + 0) * out_stride, _mm512_shuffle_f32x4(even0, even1, 0x88));
            store(out + (j + 4) * out_stride, _mm512_shuffle_f32x4(odd0, odd1, 0x88));
            store(out + (j + 8) * out_stride, _mm512_shuffle_f32x4(even0, even1, 0xdd));
            store(out + (j + 12) * out_stride, _mm512_shuffle_f32x4(odd0, odd1, 0xdd));
        }
    }
};

#include "attention_tile.h"

#undef SIMD
#undef SIMD_INLINE

}  // namespace avx512

namespace avx2 {

#define SIMD        __attribute__((target("avx2,f16c,fma"))) static
#define SIMD_INLINE __attribute__((target("avx2,f16c,fma"), always_inline)) static inline

struct simd {
    using f = __m256;
    using integers = __m256i;
    static constexpr int W = 8, ROWS = 4;

    SIMD_INLINE f load(const float * x) { return _mm256_loadu_ps(x); }
    SIMD_INLINE f half(const ggml_fp16_t * x) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *) x)); }
    SIMD_INLINE void store(float * x, f y) { _mm256_storeu_ps(x, y); }
    SIMD_INLINE f set1(float x) { return _mm256_set1_ps(x); }
    SIMD_INLINE f mul(f a, f b) { return _mm256_mul_ps(a, b); }
    SIMD_INLINE f fma(f a, f b, f c) { return _mm256_fmadd_ps(a, b, c); }
    SIMD_INLINE f max(f a, f b) { return _mm256_max_ps(a, b); }
    SIMD_INLINE float greatest(f a) {
        const __m128 x = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1)), y = _mm_max_ps(x, _mm_movehl_ps(x, x));
        return _mm_cvtss_f32(_mm_max_ss(y, _mm_shuffle_ps(y, y, 1)));
    }
    SIMD_INLINE integers zero() { return _mm256_setzero_si256(); }
    SIMD_INLINE int64_t total(integers a) {
        alignas(32) int64_t x[4];
        _mm256_store_si256((__m256i *) x, a);
        return x[0] + x[1] + x[2] + x[3];
    }
    SIMD_INLINE integers rounded(integers sum, __m128 p) {   // a double of this size holds its integer in the low bits
        const __m256d magic = _mm256_set1_pd(0x1.8p52);
        const __m256d x = _mm256_add_pd(_mm256_mul_pd(_mm256_cvtps_pd(p), _mm256_set1_pd(0x1p40)), magic);
        return _mm256_add_epi64(sum, _mm256_sub_epi64(_mm256_castpd_si256(x), _mm256_castpd_si256(magic)));
    }
    SIMD_INLINE integers fixed(integers sum, f p) { return rounded(rounded(sum, _mm256_castps256_ps128(p)), _mm256_extractf128_ps(p, 1)); }
    SIMD_INLINE f exp(f x) {
        const f big = _mm256_cmp_ps(x, set1(-87.0f), _CMP_GE_OQ);
        const f n = _mm256_round_ps(mul(x, set1(0x1.715476p+0f)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        const f r = fma(n, set1(-0x1.7f7d1cp-20f), fma(n, set1(-0x1.62e4p-1f), x));
        const __m256i power = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
        return _mm256_and_ps(big, mul(EXP_POLYNOMIAL(fma, set1, r), _mm256_castsi256_ps(power)));
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
};

#include "attention_tile.h"

#undef SIMD
#undef SIMD_INLINE

}  // namespace avx2

}  // namespace

const attention_tile * const * attention_tiles() {
    static const attention_tile wide = { avx512::BLOCK, avx512::run }, narrow = { avx2::BLOCK, avx2::run };
    static const bool is_wide   = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    static const bool is_narrow = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    static const attention_tile * const tiles[] = { is_wide ? &wide : is_narrow ? &narrow : nullptr, is_wide ? &narrow : nullptr, nullptr };
    return tiles;
}

}  // namespace dflash

#elif !defined(__aarch64__)

namespace dflash {
const attention_tile * const * attention_tiles() {
    static const attention_tile * const none[] = { nullptr };
    return none;
}
}

#endif
