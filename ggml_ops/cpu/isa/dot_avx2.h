// AVX2 for panel_tile.h, once with AVX-VNNI and once without: LANES_VNNI is 1 or 0, and LANES and LANES_INLINE name the
// target.

struct lanes {
    using i                 = __m256i;
    using f                 = __m256;
    using b                 = __m256i;
    using p                 = __m256i;
    static constexpr int  W = 8, ROWS = 4, GROUPS[] = { 4, 2, 2 };
    static constexpr bool SIGNED = !LANES_VNNI;

    LANES_INLINE b load(const uint8_t * q) { return _mm256_loadu_si256((const __m256i *) q); }
    LANES_INLINE b flip(b v) { return _mm256_xor_si256(v, _mm256_set1_epi8((char) 0x80)); }
    LANES_INLINE b low(b v) { return _mm256_and_si256(v, _mm256_set1_epi8(15)); }
    LANES_INLINE b high(b v) { return _mm256_and_si256(_mm256_srli_epi16(v, 4), _mm256_set1_epi8(15)); }
    LANES_INLINE b either(b v, b w) { return _mm256_or_si256(v, w); }
    template <int N> LANES_INLINE b bits(b v, char mask) {
        return _mm256_and_si256(
            N < 0 ? _mm256_srli_epi16(v, N < 0 ? -N : 0) : _mm256_slli_epi16(v, N < 0 ? 0 : N), _mm256_set1_epi8(mask));
    }
    LANES_INLINE b table(const int8_t * t, b v) {
        return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *) t)), v);
    }

    LANES_INLINE f half(const ggml_half * h) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *) h)); }
    LANES_INLINE f e8m0(const uint8_t * e) {
        const __m256i x     = bytes(e);
        const __m256i small = _mm256_sllv_epi32(_mm256_set1_epi32(0x200000), x);   // below 2: denormal
        const __m256i large = _mm256_slli_epi32(_mm256_sub_epi32(x, _mm256_set1_epi32(1)), 23);
        return _mm256_castsi256_ps(_mm256_blendv_epi8(small, large, _mm256_cmpgt_epi32(x, _mm256_set1_epi32(1))));
    }
    LANES_INLINE i bytes(const uint8_t * v) { return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *) v)); }
    LANES_INLINE p pairs_u8(const uint8_t * v) { return _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *) v)); }
    LANES_INLINE p pairs_s8(const int8_t * v) { return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *) v)); }
    LANES_INLINE i even(p v) { return _mm256_srai_epi32(_mm256_slli_epi32(v, 16), 16); }
    LANES_INLINE i odd(p v) { return _mm256_srai_epi32(v, 16); }
    LANES_INLINE i dot2(i sum, p v, const int16_t * two) {
        int32_t x;
        std::memcpy(&x, two, 4);
        return _mm256_add_epi32(sum, _mm256_madd_epi16(v, _mm256_set1_epi32(x)));
    }
    LANES_INLINE i    add_mul(i x, i y, i z) { return _mm256_add_epi32(x, _mm256_mullo_epi32(y, z)); }
    LANES_INLINE i    less_32(i x, i y) { return _mm256_sub_epi32(x, _mm256_slli_epi32(y, 5)); }
    LANES_INLINE i    zero() { return _mm256_setzero_si256(); }
    LANES_INLINE f    to_float(i x) { return _mm256_cvtepi32_ps(x); }
    LANES_INLINE f    as_float(i x) { return _mm256_castsi256_ps(x); }
    LANES_INLINE f    mul(f x, f y) { return _mm256_mul_ps(x, y); }
    LANES_INLINE f    set1(float x) { return _mm256_set1_ps(x); }
    LANES_INLINE f    fma(f x, f y, f z) { return _mm256_fmadd_ps(x, y, z); }
    LANES_INLINE f    fnma(f x, f y, f z) { return _mm256_fnmadd_ps(x, y, z); }
    LANES_INLINE void store(float * to, f x) { _mm256_storeu_ps(to, x); }
};

template <int R> struct products {
    __m256i s[R];

    LANES_INLINE __m256i four(const int8_t * a) {
        int32_t x;
        std::memcpy(&x, a, 4);
        return _mm256_set1_epi32(x);
    }
    LANES_INLINE_MEMBER void    start(int r, int32_t value) { s[r] = _mm256_set1_epi32(value); }
    LANES_INLINE_MEMBER __m256i row(int r) const { return s[r]; }

    template <bool WHOLE> LANES_INLINE_MEMBER void add(__m256i w0, __m256i w1, const int8_t * const * a, int64_t at) {
#if LANES_VNNI
        for (int r = 0; r < R; ++r) {
            s[r] = _mm256_dpbusd_avx_epi32(_mm256_dpbusd_avx_epi32(s[r], w0, four(a[r] + at)), w1, four(a[r] + at + 4));
        }
#else
        const __m256i ones = _mm256_set1_epi16(1);
        if (WHOLE) {   // a product of two bytes takes all of 16 bits: the weights' signs go to the activations
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
