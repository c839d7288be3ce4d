// AVX-512 for panel_tile.h, once with VNNI and once without: LANES_VNNI is 1 or 0, and LANES and LANES_INLINE name the
// target.

struct lanes {
    using i                 = __m512i;
    using f                 = __m512;
    using b                 = __m512i;
    using p                 = __m512i;
    static constexpr int  W = 16, ROWS = 8, GROUPS[] = { 4, 2, 2 };
    static constexpr bool SIGNED = !LANES_VNNI;

    LANES_INLINE b load(const uint8_t * q) { return _mm512_loadu_si512(q); }
    LANES_INLINE b flip(b v) { return _mm512_xor_si512(v, _mm512_set1_epi8((char) 0x80)); }
    LANES_INLINE b low(b v) { return _mm512_and_si512(v, _mm512_set1_epi8(15)); }
    LANES_INLINE b high(b v) { return _mm512_and_si512(_mm512_srli_epi16(v, 4), _mm512_set1_epi8(15)); }
    LANES_INLINE b either(b v, b w) { return _mm512_or_si512(v, w); }
    template <int N> LANES_INLINE b bits(b v, char mask) {
        return _mm512_and_si512(
            N < 0 ? _mm512_srli_epi16(v, N < 0 ? -N : 0) : _mm512_slli_epi16(v, N < 0 ? 0 : N), _mm512_set1_epi8(mask));
    }
    LANES_INLINE b table(const int8_t * t, b v) {
        return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *) t)), v);
    }

    LANES_INLINE f half(const ggml_half * h) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *) h)); }
    LANES_INLINE f e8m0(const uint8_t * e) {
        const __m512i x     = bytes(e);
        const __m512i small = _mm512_sllv_epi32(_mm512_set1_epi32(0x200000), x);   // below 2: denormal
        return _mm512_castsi512_ps(_mm512_mask_slli_epi32(
            small, _mm512_cmpge_epi32_mask(x, _mm512_set1_epi32(2)), _mm512_sub_epi32(x, _mm512_set1_epi32(1)), 23));
    }
    LANES_INLINE i bytes(const uint8_t * v) { return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *) v)); }
    LANES_INLINE p pairs_u8(const uint8_t * v) { return _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *) v)); }
    LANES_INLINE p pairs_s8(const int8_t * v) { return _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *) v)); }
    LANES_INLINE i even(p v) { return _mm512_srai_epi32(_mm512_slli_epi32(v, 16), 16); }
    LANES_INLINE i odd(p v) { return _mm512_srai_epi32(v, 16); }
    LANES_INLINE i dot2(i sum, p v, const int16_t * two) {
        int32_t x;
        std::memcpy(&x, two, 4);
#if LANES_VNNI
        return _mm512_dpwssd_epi32(sum, v, _mm512_set1_epi32(x));
#else
        return _mm512_add_epi32(sum, _mm512_madd_epi16(v, _mm512_set1_epi32(x)));
#endif
    }
    LANES_INLINE i    add_mul(i x, i y, i z) { return _mm512_add_epi32(x, _mm512_mullo_epi32(y, z)); }
    LANES_INLINE i    less_32(i x, i y) { return _mm512_sub_epi32(x, _mm512_slli_epi32(y, 5)); }
    LANES_INLINE i    zero() { return _mm512_setzero_si512(); }
    LANES_INLINE f    to_float(i x) { return _mm512_cvtepi32_ps(x); }
    LANES_INLINE f    as_float(i x) { return _mm512_castsi512_ps(x); }
    LANES_INLINE f    mul(f x, f y) { return _mm512_mul_ps(x, y); }
    LANES_INLINE f    set1(float x) { return _mm512_set1_ps(x); }
    LANES_INLINE f    fma(f x, f y, f z) { return _mm512_fmadd_ps(x, y, z); }
    LANES_INLINE f    fnma(f x, f y, f z) { return _mm512_fnmadd_ps(x, y, z); }
    LANES_INLINE void store(float * to, f x) { _mm512_storeu_ps(to, x); }
};

template <int R> struct products {
    __m512i s[R];

    LANES_INLINE __m512i four(const int8_t * a) {
        int32_t x;
        std::memcpy(&x, a, 4);
        return _mm512_set1_epi32(x);
    }
    LANES_INLINE_MEMBER void    start(int r, int32_t value) { s[r] = _mm512_set1_epi32(value); }
    LANES_INLINE_MEMBER __m512i row(int r) const { return s[r]; }

    template <bool WHOLE> LANES_INLINE_MEMBER void add(__m512i w0, __m512i w1, const int8_t * const * a, int64_t at) {
#if LANES_VNNI
        for (int r = 0; r < R; ++r) {
            s[r] = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(s[r], w0, four(a[r] + at)), w1, four(a[r] + at + 4));
        }
#else
        const __m512i ones = _mm512_set1_epi16(1), none = _mm512_setzero_si512();
        if (WHOLE) {   // a product of two bytes takes all of 16 bits: the weights' signs go to the activations
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
