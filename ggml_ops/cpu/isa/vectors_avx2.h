// AVX2 with FMA and F16C (vectors.h), with or without AVX-VNNI: ISA_VNNI is 1 or 0.

struct simd {
    using f32 = __m256;
    using i32 = __m256i;
    using i64 = __m256i;
    using f16 = __m256i;
    using u8  = __m256i;
    using i16 = __m256i;
    // 16 registers: 8 accumulators for 4 rows, the others for two vectors of weights, their products and constants.
    static constexpr int  W = 8, ROWS = 4;
    static constexpr bool SIGNED_WEIGHTS = !ISA_VNNI;

    ISA_INLINE f32 load_f32(const float * x) { return _mm256_loadu_ps(x); }
    ISA_INLINE f32 load_f16(const ggml_fp16_t * x) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *) x)); }
    ISA_INLINE f32 load_bf16(const uint16_t * x) {
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *) x)), 16));
    }
    ISA_INLINE void store(float * x, f32 y) { _mm256_storeu_ps(x, y); }
    ISA_INLINE f32  set1(float x) { return _mm256_set1_ps(x); }
    ISA_INLINE f32  mul(f32 a, f32 b) { return _mm256_mul_ps(a, b); }
    ISA_INLINE f32  fma(f32 a, f32 b, f32 c) { return _mm256_fmadd_ps(a, b, c); }
    ISA_INLINE f32  max(f32 a, f32 b) { return _mm256_max_ps(a, b); }
    ISA_INLINE f32  hide(f32 mask, f32 a) {
        return _mm256_blendv_ps(a, mask, _mm256_cmp_ps(mask, set1(-INFINITY), _CMP_EQ_OQ));
    }
    ISA_INLINE float reduce_max(f32 a) {
        const __m128 x = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1)),
                     y = _mm_max_ps(x, _mm_movehl_ps(x, x));
        return _mm_cvtss_f32(_mm_max_ss(y, _mm_shuffle_ps(y, y, 1)));
    }
    ISA_INLINE float reduce_add(f32 a) {
        const __m128 x = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1)),
                     y = _mm_add_ps(x, _mm_movehl_ps(x, x));
        return _mm_cvtss_f32(_mm_add_ss(y, _mm_shuffle_ps(y, y, 1)));
    }
    ISA_INLINE i64     zero_i64() { return _mm256_setzero_si256(); }
    ISA_INLINE int64_t reduce_add(i64 a) {
        alignas(32) uint64_t x[4];
        _mm256_store_si256((__m256i *) x, a);
        return (int64_t) (x[0] + x[1] + x[2] + x[3]);
    }
    ISA_INLINE i64 add_rounded(i64 sum, __m128 p) {   // a double of this size has its integer in the low bits
        const __m256d magic = _mm256_set1_pd(0x1.8p52);
        const __m256d x     = _mm256_add_pd(_mm256_mul_pd(_mm256_cvtps_pd(p), _mm256_set1_pd(0x1p40)), magic);
        return _mm256_add_epi64(sum, _mm256_sub_epi64(_mm256_castpd_si256(x), _mm256_castpd_si256(magic)));
    }
    ISA_INLINE i64 add_fixed_point(i64 sum, f32 p) {
        return add_rounded(add_rounded(sum, _mm256_castps256_ps128(p)), _mm256_extractf128_ps(p, 1));
    }
    ISA_INLINE f32 exp(f32 x) {
        const f32     big = _mm256_cmp_ps(x, set1(-87.0f), _CMP_NLT_UQ);
        const f32     n = _mm256_round_ps(mul(x, set1(0x1.715476p+0f)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        const f32     r = fma(n, set1(-0x1.7f7d1cp-20f), fma(n, set1(-0x1.62e4p-1f), x));
        const __m256i power = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
        return _mm256_and_ps(big, mul(DFLASH_EXP_POLYNOMIAL(fma, set1, r), _mm256_castsi256_ps(power)));
    }
    ISA_INLINE void transpose(const float * in, int64_t in_stride, float * out, int64_t out_stride) {
        __m256 a[8], b[8];
        for (int i = 0; i < 8; ++i) {
            a[i] = load_f32(in + i * in_stride);
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
    ISA_INLINE f16 load_rows_f16(const ggml_fp16_t * in, int64_t stride) {
        return _mm256_loadu2_m128i((const __m128i *) (in + 8 * stride), (const __m128i *) in);
    }
    ISA_INLINE f16  zip_low_16(f16 a, f16 b) { return _mm256_unpacklo_epi16(a, b); }
    ISA_INLINE f16  zip_high_16(f16 a, f16 b) { return _mm256_unpackhi_epi16(a, b); }
    ISA_INLINE f16  zip_low_32(f16 a, f16 b) { return _mm256_unpacklo_epi32(a, b); }
    ISA_INLINE f16  zip_high_32(f16 a, f16 b) { return _mm256_unpackhi_epi32(a, b); }
    ISA_INLINE f16  zip_low_64(f16 a, f16 b) { return _mm256_unpacklo_epi64(a, b); }
    ISA_INLINE f16  zip_high_64(f16 a, f16 b) { return _mm256_unpackhi_epi64(a, b); }
    ISA_INLINE void store_f16(ggml_fp16_t * x, f16 y) { _mm256_storeu_si256((__m256i *) x, y); }

    ISA_INLINE u8 load_u8(const uint8_t * q) { return _mm256_loadu_si256((const __m256i *) q); }
    ISA_INLINE u8 flip_sign(u8 v) { return _mm256_xor_si256(v, _mm256_set1_epi8((char) 0x80)); }
    ISA_INLINE u8 low_nibbles(u8 v) { return _mm256_and_si256(v, _mm256_set1_epi8(15)); }
    ISA_INLINE u8 high_nibbles(u8 v) { return _mm256_and_si256(_mm256_srli_epi16(v, 4), _mm256_set1_epi8(15)); }
    ISA_INLINE u8 bit_or(u8 v, u8 w) { return _mm256_or_si256(v, w); }
    template <int N> ISA_INLINE u8 shift_and_mask(u8 v, char mask) {
        return _mm256_and_si256(
            N < 0 ? _mm256_srli_epi16(v, N < 0 ? -N : 0) : _mm256_slli_epi16(v, N < 0 ? 0 : N), _mm256_set1_epi8(mask));
    }
    ISA_INLINE u8 lookup(const int8_t * t, u8 v) {
        return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *) t)), v);
    }

    ISA_INLINE f32 load_e8m0(const uint8_t * e) {
        const __m256i x     = load_u8_as_i32(e);
        const __m256i small = _mm256_sllv_epi32(_mm256_set1_epi32(0x200000), x);   // below 2: denormal
        const __m256i large = _mm256_slli_epi32(_mm256_sub_epi32(x, _mm256_set1_epi32(1)), 23);
        return _mm256_castsi256_ps(_mm256_blendv_epi8(small, large, _mm256_cmpgt_epi32(x, _mm256_set1_epi32(1))));
    }
    ISA_INLINE i32 load_u8_as_i32(const uint8_t * v) {
        return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *) v));
    }
    ISA_INLINE i16 load_pairs_u8(const uint8_t * v) {
        return _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *) v));
    }
    ISA_INLINE i16 load_pairs_s8(const int8_t * v) {
        return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *) v));
    }
    ISA_INLINE i32 even_of_pairs(i16 v) { return _mm256_srai_epi32(_mm256_slli_epi32(v, 16), 16); }
    ISA_INLINE i32 odd_of_pairs(i16 v) { return _mm256_srai_epi32(v, 16); }
    ISA_INLINE i16 low_nibbles_of_pairs(i16 v) { return _mm256_and_si256(v, _mm256_set1_epi16(15)); }
    ISA_INLINE i16 high_nibbles_of_pairs(i16 v) { return _mm256_srli_epi16(v, 4); }
    ISA_INLINE i32 dot_pairs(i32 sum, i16 v, const int16_t * two) {
        int32_t x;
        std::memcpy(&x, two, 4);
        return _mm256_add_epi32(sum, _mm256_madd_epi16(v, _mm256_set1_epi32(x)));
    }
    ISA_INLINE i32 mul_add(i32 x, i32 y, i32 z) { return _mm256_add_epi32(x, _mm256_mullo_epi32(y, z)); }
    template <int N> ISA_INLINE i32 sub_shifted(i32 x, i32 y) { return _mm256_sub_epi32(x, _mm256_slli_epi32(y, N)); }
    ISA_INLINE f32                  to_f32(i32 x) { return _mm256_cvtepi32_ps(x); }
    ISA_INLINE f32                  as_f32(i32 x) { return _mm256_castsi256_ps(x); }
    ISA_INLINE f32                  fnma(f32 x, f32 y, f32 z) { return _mm256_fnmadd_ps(x, y, z); }
};

template <int R> struct dot_products {
    __m256i s[R];

    ISA_INLINE __m256i four(const int8_t * a) {
        int32_t x;
        std::memcpy(&x, a, 4);
        return _mm256_set1_epi32(x);
    }
    ISA_INLINE_MEMBER void    set(int r, int32_t value) { s[r] = _mm256_set1_epi32(value); }
    ISA_INLINE_MEMBER __m256i row(int r) const { return s[r]; }

    template <bool FULL_BYTES>
    ISA_INLINE_MEMBER void add(__m256i w0, __m256i w1, const int8_t * const * a, int64_t at) {
#if ISA_VNNI
        for (int r = 0; r < R; ++r) {
            s[r] = _mm256_dpbusd_avx_epi32(_mm256_dpbusd_avx_epi32(s[r], w0, four(a[r] + at)), w1, four(a[r] + at + 4));
        }
#else
        const __m256i ones = _mm256_set1_epi16(1);
        if (FULL_BYTES) {   // a product of two bytes needs all 16 bits, so the weights' signs are moved to the
                            // activations
            const __m256i v0 = _mm256_abs_epi8(w0), v1 = _mm256_abs_epi8(w1);
            for (int r = 0; r < R; ++r) {
                const __m256i x0 =
                    _mm256_madd_epi16(_mm256_maddubs_epi16(v0, _mm256_sign_epi8(four(a[r] + at), w0)), ones);
                const __m256i x1 =
                    _mm256_madd_epi16(_mm256_maddubs_epi16(v1, _mm256_sign_epi8(four(a[r] + at + 4), w1)), ones);
                s[r] = _mm256_add_epi32(s[r], _mm256_add_epi32(x0, x1));
            }
        } else {   // weights below 64: four products stay below 2^15
            for (int r = 0; r < R; ++r) {
                const __m256i x = _mm256_add_epi16(
                    _mm256_maddubs_epi16(w0, four(a[r] + at)), _mm256_maddubs_epi16(w1, four(a[r] + at + 4)));
                s[r] = _mm256_add_epi32(s[r], _mm256_madd_epi16(x, ones));
            }
        }
#endif
    }
};

#include "cpu/isa/vectors_interface.h"
