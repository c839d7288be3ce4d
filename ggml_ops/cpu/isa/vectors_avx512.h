// AVX-512 (vectors.h), with or without VNNI: ISA_VNNI is 1 or 0.

struct simd {
    using f32 = __m512;
    using i32 = __m512i;
    using i64 = __m512i;
    using f16 = __m512i;
    using u8  = __m512i;
    using i16 = __m512i;
    // 32 registers: 16 accumulators for 8 rows.
    static constexpr int  W = 16, ROWS = 8;
    static constexpr bool SIGNED_WEIGHTS = !ISA_VNNI;

    ISA_INLINE f32 load_f32(const float * x) { return _mm512_loadu_ps(x); }
    ISA_INLINE f32 load_f16(const ggml_fp16_t * x) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *) x)); }
    ISA_INLINE f32 load_bf16(const uint16_t * x) {
        return _mm512_castsi512_ps(
            _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *) x)), 16));
    }
    ISA_INLINE void store(float * x, f32 y) { _mm512_storeu_ps(x, y); }
    ISA_INLINE f32  set1(float x) { return _mm512_set1_ps(x); }
    ISA_INLINE f32  mul(f32 a, f32 b) { return _mm512_mul_ps(a, b); }
    ISA_INLINE f32  fma(f32 a, f32 b, f32 c) { return _mm512_fmadd_ps(a, b, c); }
    ISA_INLINE f32  max(f32 a, f32 b) { return _mm512_max_ps(a, b); }
    ISA_INLINE f32  hide(f32 mask, f32 a) {
        return _mm512_mask_mov_ps(a, _mm512_cmp_ps_mask(mask, set1(-INFINITY), _CMP_EQ_OQ), mask);
    }
    ISA_INLINE float   reduce_max(f32 a) { return _mm512_reduce_max_ps(a); }
    ISA_INLINE float   reduce_add(f32 a) { return _mm512_reduce_add_ps(a); }
    ISA_INLINE i64     zero_i64() { return _mm512_setzero_si512(); }
    ISA_INLINE int64_t reduce_add(i64 a) {
        alignas(64) uint64_t x[8];
        _mm512_store_si512(x, a);
        return (int64_t) (x[0] + x[1] + x[2] + x[3] + x[4] + x[5] + x[6] + x[7]);
    }
    ISA_INLINE i64 add_fixed_point(i64 sum, f32 p) {
        const f32 scaled = mul(p, set1(0x1p40f));
        return _mm512_add_epi64(sum, _mm512_add_epi64(_mm512_cvtps_epi64(_mm512_castps512_ps256(scaled)),
                                         _mm512_cvtps_epi64(_mm512_extractf32x8_ps(scaled, 1))));
    }
    ISA_INLINE f32 exp(f32 x) {
        const __mmask16 big = _mm512_cmp_ps_mask(x, set1(-87.0f), _CMP_NLT_UQ);
        const f32 n = _mm512_roundscale_ps(mul(x, set1(0x1.715476p+0f)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        const f32 r = fma(n, set1(-0x1.7f7d1cp-20f), fma(n, set1(-0x1.62e4p-1f), x));
        return _mm512_maskz_scalef_ps(big, DFLASH_EXP_POLYNOMIAL(fma, set1, r), n);
    }
    ISA_INLINE void transpose(const float * in, int64_t in_stride, float * out, int64_t out_stride) {
        __m512 a[16], b[16];
        for (int i = 0; i < 16; ++i) {
            a[i] = load_f32(in + i * in_stride);
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
    ISA_INLINE f16 load_rows_f16(const ggml_fp16_t * in, int64_t stride) {
        const auto eight = [&](int row) { return _mm_loadu_si128((const __m128i *) (in + row * stride)); };
        return _mm512_inserti32x4(
            _mm512_inserti32x4(_mm512_inserti32x4(_mm512_castsi128_si512(eight(0)), eight(8), 1), eight(16), 2),
            eight(24), 3);
    }
    ISA_INLINE f16  zip_low_16(f16 a, f16 b) { return _mm512_unpacklo_epi16(a, b); }
    ISA_INLINE f16  zip_high_16(f16 a, f16 b) { return _mm512_unpackhi_epi16(a, b); }
    ISA_INLINE f16  zip_low_32(f16 a, f16 b) { return _mm512_unpacklo_epi32(a, b); }
    ISA_INLINE f16  zip_high_32(f16 a, f16 b) { return _mm512_unpackhi_epi32(a, b); }
    ISA_INLINE f16  zip_low_64(f16 a, f16 b) { return _mm512_unpacklo_epi64(a, b); }
    ISA_INLINE f16  zip_high_64(f16 a, f16 b) { return _mm512_unpackhi_epi64(a, b); }
    ISA_INLINE void store_f16(ggml_fp16_t * x, f16 y) { _mm512_storeu_si512(x, y); }

    ISA_INLINE u8 load_u8(const uint8_t * q) { return _mm512_loadu_si512(q); }
    ISA_INLINE u8 flip_sign(u8 v) { return _mm512_xor_si512(v, _mm512_set1_epi8((char) 0x80)); }
    ISA_INLINE u8 low_nibbles(u8 v) { return _mm512_and_si512(v, _mm512_set1_epi8(15)); }
    ISA_INLINE u8 high_nibbles(u8 v) { return _mm512_and_si512(_mm512_srli_epi16(v, 4), _mm512_set1_epi8(15)); }
    ISA_INLINE u8 bit_or(u8 v, u8 w) { return _mm512_or_si512(v, w); }
    template <int N> ISA_INLINE u8 shift_and_mask(u8 v, char mask) {
        return _mm512_and_si512(
            N < 0 ? _mm512_srli_epi16(v, N < 0 ? -N : 0) : _mm512_slli_epi16(v, N < 0 ? 0 : N), _mm512_set1_epi8(mask));
    }
    ISA_INLINE u8 lookup(const int8_t * t, u8 v) {
        return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *) t)), v);
    }

    ISA_INLINE f32 load_e8m0(const uint8_t * e) {
        const __m512i x     = load_u8_as_i32(e);
        const __m512i small = _mm512_sllv_epi32(_mm512_set1_epi32(0x200000), x);   // below 2: denormal
        return _mm512_castsi512_ps(_mm512_mask_slli_epi32(
            small, _mm512_cmpge_epi32_mask(x, _mm512_set1_epi32(2)), _mm512_sub_epi32(x, _mm512_set1_epi32(1)), 23));
    }
    ISA_INLINE i32 load_u8_as_i32(const uint8_t * v) {
        return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *) v));
    }
    ISA_INLINE i16 load_pairs_u8(const uint8_t * v) {
        return _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *) v));
    }
    ISA_INLINE i16 load_pairs_s8(const int8_t * v) {
        return _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *) v));
    }
    ISA_INLINE i32 even_of_pairs(i16 v) { return _mm512_srai_epi32(_mm512_slli_epi32(v, 16), 16); }
    ISA_INLINE i32 odd_of_pairs(i16 v) { return _mm512_srai_epi32(v, 16); }
    ISA_INLINE i16 low_nibbles_of_pairs(i16 v) { return _mm512_and_si512(v, _mm512_set1_epi16(15)); }
    ISA_INLINE i16 high_nibbles_of_pairs(i16 v) { return _mm512_srli_epi16(v, 4); }
    ISA_INLINE i32 dot_pairs(i32 sum, i16 v, const int16_t * two) {
        int32_t x;
        std::memcpy(&x, two, 4);
#if ISA_VNNI
        return _mm512_dpwssd_epi32(sum, v, _mm512_set1_epi32(x));
#else
        return _mm512_add_epi32(sum, _mm512_madd_epi16(v, _mm512_set1_epi32(x)));
#endif
    }
    ISA_INLINE i32 mul_add(i32 x, i32 y, i32 z) { return _mm512_add_epi32(x, _mm512_mullo_epi32(y, z)); }
    template <int N> ISA_INLINE i32 sub_shifted(i32 x, i32 y) { return _mm512_sub_epi32(x, _mm512_slli_epi32(y, N)); }
    ISA_INLINE f32                  to_f32(i32 x) { return _mm512_cvtepi32_ps(x); }
    ISA_INLINE f32                  as_f32(i32 x) { return _mm512_castsi512_ps(x); }
    ISA_INLINE f32                  fnma(f32 x, f32 y, f32 z) { return _mm512_fnmadd_ps(x, y, z); }
};

template <int R> struct dot_products {
    __m512i s[R];

    ISA_INLINE __m512i four(const int8_t * a) {
        int32_t x;
        std::memcpy(&x, a, 4);
        return _mm512_set1_epi32(x);
    }
    ISA_INLINE_MEMBER void    set(int r, int32_t value) { s[r] = _mm512_set1_epi32(value); }
    ISA_INLINE_MEMBER __m512i row(int r) const { return s[r]; }

    template <bool FULL_BYTES>
    ISA_INLINE_MEMBER void add(__m512i w0, __m512i w1, const int8_t * const * a, int64_t at) {
#if ISA_VNNI
        for (int r = 0; r < R; ++r) {
            s[r] = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(s[r], w0, four(a[r] + at)), w1, four(a[r] + at + 4));
        }
#else
        const __m512i ones = _mm512_set1_epi16(1), none = _mm512_setzero_si512();
        if (FULL_BYTES) {   // a product of two bytes needs all 16 bits, so the weights' signs are moved to the
                            // activations
            const __mmask64 m0 = _mm512_movepi8_mask(w0), m1 = _mm512_movepi8_mask(w1);
            const __m512i   v0 = _mm512_abs_epi8(w0), v1 = _mm512_abs_epi8(w1);
            for (int r = 0; r < R; ++r) {
                const __m512i a0 = four(a[r] + at), a1 = four(a[r] + at + 4);
                const __m512i x0 =
                    _mm512_madd_epi16(_mm512_maddubs_epi16(v0, _mm512_mask_sub_epi8(a0, m0, none, a0)), ones);
                const __m512i x1 =
                    _mm512_madd_epi16(_mm512_maddubs_epi16(v1, _mm512_mask_sub_epi8(a1, m1, none, a1)), ones);
                s[r] = _mm512_add_epi32(s[r], _mm512_add_epi32(x0, x1));
            }
        } else {   // weights below 64: four products stay below 2^15
            for (int r = 0; r < R; ++r) {
                const __m512i x = _mm512_add_epi16(
                    _mm512_maddubs_epi16(w0, four(a[r] + at)), _mm512_maddubs_epi16(w1, four(a[r] + at + 4)));
                s[r] = _mm512_add_epi32(s[r], _mm512_madd_epi16(x, ones));
            }
        }
#endif
    }
};

#include "cpu/isa/vectors_interface.h"
