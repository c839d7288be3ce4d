// NEON for panel_tile.h, once with i8mm and once with dotprod alone: LANES_I8MM is 1 or 0, and LANES and LANES_INLINE
// name the target.
//
// Counted in gcc 12's code for Q4_0, 8 rows, one block of 4 columns: dotprod 105 vector instructions besides loads and
// stores, 64 of them dot products; i8mm 113, 32 of them matrix products (pairing the rows takes what those save). Times
// were not measured on such a machine.

struct lanes {
    using i = int32x4_t;
    using f = float32x4_t;
    using b = uint8x16_t;
    struct p {
        int16x4_t even, odd;
    };
    static constexpr int  W = 4, ROWS = 8, GROUPS[] = { 4, 4, 4 };
    static constexpr bool SIGNED = true;

    LANES_INLINE b                  load(const uint8_t * q) { return vld1q_u8(q); }
    LANES_INLINE b                  flip(b v) { return veorq_u8(v, vdupq_n_u8(0x80)); }
    LANES_INLINE b                  low(b v) { return vandq_u8(v, vdupq_n_u8(15)); }
    LANES_INLINE b                  high(b v) { return vshrq_n_u8(v, 4); }
    LANES_INLINE b                  either(b v, b w) { return vorrq_u8(v, w); }
    template <int N> LANES_INLINE b bits(b v, uint8_t mask) {
        return vandq_u8(N < 0 ? vshrq_n_u8(v, N < 0 ? -N : 1) : vshlq_n_u8(v, N < 0 ? 0 : N), vdupq_n_u8(mask));
    }
    LANES_INLINE b table(const int8_t * t, b v) { return vreinterpretq_u8_s8(vqtbl1q_s8(vld1q_s8(t), v)); }

    LANES_INLINE f half(const ggml_half * h) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(h))); }
    LANES_INLINE f e8m0(const uint8_t * e) {
        const int32x4_t x     = bytes(e);
        const int32x4_t small = vshlq_s32(vdupq_n_s32(0x200000), x);   // below 2: denormal
        const int32x4_t large = vshlq_n_s32(vsubq_s32(x, vdupq_n_s32(1)), 23);
        return vreinterpretq_f32_s32(vbslq_s32(vcgtq_s32(x, vdupq_n_s32(1)), large, small));
    }
    LANES_INLINE i bytes(const uint8_t * v) {
        uint32_t x;
        std::memcpy(&x, v, 4);
        return vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(x))))));
    }
    LANES_INLINE p pairs(int16x8_t v) { return { vget_low_s16(vuzp1q_s16(v, v)), vget_low_s16(vuzp2q_s16(v, v)) }; }
    LANES_INLINE p pairs_u8(const uint8_t * v) { return pairs(vreinterpretq_s16_u16(vmovl_u8(vld1_u8(v)))); }
    LANES_INLINE p pairs_s8(const int8_t * v) { return pairs(vmovl_s8(vld1_s8(v))); }
    LANES_INLINE i even(p v) { return vmovl_s16(v.even); }
    LANES_INLINE i odd(p v) { return vmovl_s16(v.odd); }
    LANES_INLINE i dot2(i sum, p v, const int16_t * two) {
        return vmlal_n_s16(vmlal_n_s16(sum, v.even, two[0]), v.odd, two[1]);
    }
    LANES_INLINE i    add_mul(i x, i y, i z) { return vmlaq_s32(x, y, z); }
    LANES_INLINE i    less_32(i x, i y) { return vsubq_s32(x, vshlq_n_s32(y, 5)); }
    LANES_INLINE i    zero() { return vdupq_n_s32(0); }
    LANES_INLINE f    to_float(i x) { return vcvtq_f32_s32(x); }
    LANES_INLINE f    as_float(i x) { return vreinterpretq_f32_s32(x); }
    LANES_INLINE f    mul(f x, f y) { return vmulq_f32(x, y); }
    LANES_INLINE f    set1(float x) { return vdupq_n_f32(x); }
    LANES_INLINE f    fma(f x, f y, f z) { return vfmaq_f32(z, x, y); }
    LANES_INLINE f    fnma(f x, f y, f z) { return vfmsq_f32(z, x, y); }
    LANES_INLINE void store(float * to, f x) { vst1q_f32(to, x); }
};

// With i8mm rows go in pairs: lanes are row 0 of two columns, then row 1. An odd last row takes dot products.
template <int R> struct products {
    static constexpr int PAIRS = LANES_I8MM ? R / 2 : 0;
    int32x4_t            pair[PAIRS + 1][2], s[R];

    LANES_INLINE_MEMBER void start(int r, int32_t value) {
        const int32x4_t all = vdupq_n_s32(value);
        if (r >= 2 * PAIRS) {
            s[r] = all;
        } else {
            for (int32x4_t & x : pair[r / 2]) {
                x = r % 2 == 0 ? all : vcombine_s32(vget_low_s32(x), vget_low_s32(all));
            }
        }
    }
    LANES_INLINE_MEMBER int32x4_t row(int r) const {
        if (r >= 2 * PAIRS) {
            return s[r];
        }
        const int64x2_t x = vreinterpretq_s64_s32(pair[r / 2][0]), y = vreinterpretq_s64_s32(pair[r / 2][1]);
        return vreinterpretq_s32_s64(r % 2 == 0 ? vzip1q_s64(x, y) : vzip2q_s64(x, y));
    }

    template <bool WHOLE>
    LANES_INLINE_MEMBER void add(uint8x16_t w0, uint8x16_t w1, const int8_t * const * a, int64_t at) {
#if LANES_I8MM
        const int32x4_t v0 = vreinterpretq_s32_u8(w0), v1 = vreinterpretq_s32_u8(w1);
        const int8x16_t left  = vreinterpretq_s8_s32(vzip1q_s32(v0, v1)),
                        right = vreinterpretq_s8_s32(vzip2q_s32(v0, v1));   // of two columns each
        for (int n = 0; n < PAIRS; ++n) {
            const int8x16_t x = vcombine_s8(vld1_s8(a[2 * n] + at), vld1_s8(a[2 * n + 1] + at));
            pair[n][0]        = vmmlaq_s32(pair[n][0], x, left);
            pair[n][1]        = vmmlaq_s32(pair[n][1], x, right);
        }
#endif
        for (int r = 2 * PAIRS; r < R; ++r) {
            const int8x8_t x = vld1_s8(a[r] + at);
            s[r] = vdotq_lane_s32(vdotq_lane_s32(s[r], vreinterpretq_s8_u8(w0), x, 0), vreinterpretq_s8_u8(w1), x, 1);
        }
    }
};
