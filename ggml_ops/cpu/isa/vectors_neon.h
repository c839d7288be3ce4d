// NEON (vectors.h): as in every 64-bit ARM (ISA_DOTPROD is 0: floats only), with dotprod, and also with i8mm (ISA_I8MM
// is 1).
//
// Counts in gcc 12's code for Q4_0, 8 rows, one block of 4 columns: dotprod 105 vector instructions besides loads and
// stores, 64 of them dot products; i8mm 113, 32 of them matrix products (pairing the rows costs what those save). Not
// timed on such a machine.

struct simd {
    using f32 = float32x4_t;
    using i32 = int32x4_t;
    using i64 = int64x2_t;
    using f16 = uint16x8_t;
    using u8  = uint8x16_t;
    struct i16 {
        int16x4_t even, odd;
    };
    // 32 registers: 16 accumulators for 8 rows. Up to three rows: a whole panel, 4 to 12 chains of dot products.
    static constexpr int  W = 4, ROWS = 8;
    static constexpr bool SIGNED_WEIGHTS = true;

    ISA_INLINE f32     load_f32(const float * x) { return vld1q_f32(x); }
    ISA_INLINE f32     load_f16(const ggml_fp16_t * x) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(x))); }
    ISA_INLINE f32     load_bf16(const uint16_t * x) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(x), 16)); }
    ISA_INLINE void    store(float * x, f32 y) { vst1q_f32(x, y); }
    ISA_INLINE f32     set1(float x) { return vdupq_n_f32(x); }
    ISA_INLINE f32     mul(f32 a, f32 b) { return vmulq_f32(a, b); }
    ISA_INLINE f32     fma(f32 a, f32 b, f32 c) { return vfmaq_f32(c, a, b); }
    ISA_INLINE f32     max(f32 a, f32 b) { return vmaxq_f32(a, b); }
    ISA_INLINE f32     hide(f32 mask, f32 a) { return vbslq_f32(vceqq_f32(mask, set1(-INFINITY)), mask, a); }
    ISA_INLINE float   reduce_max(f32 a) { return vmaxvq_f32(a); }
    ISA_INLINE float   reduce_add(f32 a) { return vaddvq_f32(a); }
    ISA_INLINE i64     zero_i64() { return vdupq_n_s64(0); }
    ISA_INLINE int64_t reduce_add(i64 a) { return vaddvq_s64(a); }
    ISA_INLINE i64     add_fixed_point(i64 sum, f32 p) {
        const int64x2_t low  = vcvtnq_s64_f64(vmulq_n_f64(vcvt_f64_f32(vget_low_f32(p)), 0x1p40)),
                        high = vcvtnq_s64_f64(vmulq_n_f64(vcvt_high_f64_f32(p), 0x1p40));
        return vaddq_s64(sum, vaddq_s64(low, high));
    }
    ISA_INLINE f32 exp(f32 x) {
        const uint32x4_t big   = vmvnq_u32(vcltq_f32(x, set1(-87.0f)));
        const f32        n     = vrndnq_f32(mul(x, set1(0x1.715476p+0f)));
        const f32        r     = fma(n, set1(-0x1.7f7d1cp-20f), fma(n, set1(-0x1.62e4p-1f), x));
        const int32x4_t  power = vshlq_n_s32(vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127)), 23);
        return vreinterpretq_f32_u32(vandq_u32(
            big, vreinterpretq_u32_f32(mul(DFLASH_EXP_POLYNOMIAL(fma, set1, r), vreinterpretq_f32_s32(power)))));
    }
    ISA_INLINE void transpose(const float * in, int64_t in_stride, float * out, int64_t out_stride) {
        const float32x4x2_t a = vtrnq_f32(load_f32(in), load_f32(in + in_stride)),
                            b = vtrnq_f32(load_f32(in + 2 * in_stride), load_f32(in + 3 * in_stride));
        for (int i = 0; i < 2; ++i) {
            store(out + i * out_stride, vcombine_f32(vget_low_f32(a.val[i]), vget_low_f32(b.val[i])));
            store(out + (2 + i) * out_stride, vcombine_f32(vget_high_f32(a.val[i]), vget_high_f32(b.val[i])));
        }
    }
    ISA_INLINE f16 load_rows_f16(const ggml_fp16_t * in, int64_t) { return vld1q_u16(in); }
    ISA_INLINE f16 zip_low_16(f16 a, f16 b) { return vzip1q_u16(a, b); }
    ISA_INLINE f16 zip_high_16(f16 a, f16 b) { return vzip2q_u16(a, b); }
    ISA_INLINE f16 zip_low_32(f16 a, f16 b) {
        return vreinterpretq_u16_u32(vzip1q_u32(vreinterpretq_u32_u16(a), vreinterpretq_u32_u16(b)));
    }
    ISA_INLINE f16 zip_high_32(f16 a, f16 b) {
        return vreinterpretq_u16_u32(vzip2q_u32(vreinterpretq_u32_u16(a), vreinterpretq_u32_u16(b)));
    }
    ISA_INLINE f16 zip_low_64(f16 a, f16 b) {
        return vreinterpretq_u16_u64(vzip1q_u64(vreinterpretq_u64_u16(a), vreinterpretq_u64_u16(b)));
    }
    ISA_INLINE f16 zip_high_64(f16 a, f16 b) {
        return vreinterpretq_u16_u64(vzip2q_u64(vreinterpretq_u64_u16(a), vreinterpretq_u64_u16(b)));
    }
    ISA_INLINE void store_f16(ggml_fp16_t * x, f16 y) { vst1q_u16(x, y); }

#if ISA_DOTPROD
    ISA_INLINE u8                  load_u8(const uint8_t * q) { return vld1q_u8(q); }
    ISA_INLINE u8                  flip_sign(u8 v) { return veorq_u8(v, vdupq_n_u8(0x80)); }
    ISA_INLINE u8                  low_nibbles(u8 v) { return vandq_u8(v, vdupq_n_u8(15)); }
    ISA_INLINE u8                  high_nibbles(u8 v) { return vshrq_n_u8(v, 4); }
    ISA_INLINE u8                  bit_or(u8 v, u8 w) { return vorrq_u8(v, w); }
    template <int N> ISA_INLINE u8 shift_and_mask(u8 v, char mask) {
        return vandq_u8(
            N < 0 ? vshrq_n_u8(v, N < 0 ? -N : 1) : vshlq_n_u8(v, N < 0 ? 0 : N), vdupq_n_u8((uint8_t) mask));
    }
    ISA_INLINE u8 lookup(const int8_t * t, u8 v) { return vreinterpretq_u8_s8(vqtbl1q_s8(vld1q_s8(t), v)); }

    ISA_INLINE f32 load_e8m0(const uint8_t * e) {
        const int32x4_t x     = load_u8_as_i32(e);
        const int32x4_t small = vshlq_s32(vdupq_n_s32(0x200000), x);   // below 2: denormal
        const int32x4_t large = vshlq_n_s32(vsubq_s32(x, vdupq_n_s32(1)), 23);
        return vreinterpretq_f32_s32(vbslq_s32(vcgtq_s32(x, vdupq_n_s32(1)), large, small));
    }
    ISA_INLINE i32 load_u8_as_i32(const uint8_t * v) {
        uint32_t x;
        std::memcpy(&x, v, 4);
        return vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(x))))));
    }
    ISA_INLINE i16 pairs(int16x8_t v) { return { vget_low_s16(vuzp1q_s16(v, v)), vget_low_s16(vuzp2q_s16(v, v)) }; }
    ISA_INLINE i16 load_pairs_u8(const uint8_t * v) { return pairs(vreinterpretq_s16_u16(vmovl_u8(vld1_u8(v)))); }
    ISA_INLINE i16 load_pairs_s8(const int8_t * v) { return pairs(vmovl_s8(vld1_s8(v))); }
    ISA_INLINE i32 even_of_pairs(i16 v) { return vmovl_s16(v.even); }
    ISA_INLINE i32 odd_of_pairs(i16 v) { return vmovl_s16(v.odd); }
    ISA_INLINE i16 low_nibbles_of_pairs(i16 v) {
        return { vand_s16(v.even, vdup_n_s16(15)), vand_s16(v.odd, vdup_n_s16(15)) };
    }
    ISA_INLINE i16 high_nibbles_of_pairs(i16 v) { return { vshr_n_s16(v.even, 4), vshr_n_s16(v.odd, 4) }; }
    ISA_INLINE i32 dot_pairs(i32 sum, i16 v, const int16_t * two) {
        return vmlal_n_s16(vmlal_n_s16(sum, v.even, two[0]), v.odd, two[1]);
    }
    ISA_INLINE i32                  mul_add(i32 x, i32 y, i32 z) { return vmlaq_s32(x, y, z); }
    template <int N> ISA_INLINE i32 sub_shifted(i32 x, i32 y) { return vsubq_s32(x, vshlq_n_s32(y, N)); }
    ISA_INLINE f32                  to_f32(i32 x) { return vcvtq_f32_s32(x); }
    ISA_INLINE f32                  as_f32(i32 x) { return vreinterpretq_f32_s32(x); }
    ISA_INLINE f32                  fnma(f32 x, f32 y, f32 z) { return vfmsq_f32(z, x, y); }
#endif
};
#if ISA_DOTPROD

// With i8mm, rows are processed in pairs: the lanes are row 0 of two columns, then row 1. An odd last row uses dot
// products.
template <int R> struct dot_products {
    static constexpr int PAIRS = ISA_I8MM ? R / 2 : 0;
    int32x4_t            pair[PAIRS + 1][2], s[R];

    ISA_INLINE_MEMBER void set(int r, int32_t value) {
        const int32x4_t all = vdupq_n_s32(value);
        if (r >= 2 * PAIRS) {
            s[r] = all;
        } else {
            for (int32x4_t & x : pair[r / 2]) {
                x = r % 2 == 0 ? all : vcombine_s32(vget_low_s32(x), vget_low_s32(all));
            }
        }
    }
    ISA_INLINE_MEMBER int32x4_t row(int r) const {
        if (r >= 2 * PAIRS) {
            return s[r];
        }
        const int64x2_t x = vreinterpretq_s64_s32(pair[r / 2][0]), y = vreinterpretq_s64_s32(pair[r / 2][1]);
        return vreinterpretq_s32_s64(r % 2 == 0 ? vzip1q_s64(x, y) : vzip2q_s64(x, y));
    }

    template <bool FULL_BYTES>
    ISA_INLINE_MEMBER void add(uint8x16_t w0, uint8x16_t w1, const int8_t * const * a, int64_t at) {
#if ISA_I8MM
        const int32x4_t v0 = vreinterpretq_s32_u8(w0), v1 = vreinterpretq_s32_u8(w1);
        const int8x16_t left  = vreinterpretq_s8_s32(vzip1q_s32(v0, v1)),
                        right = vreinterpretq_s8_s32(vzip2q_s32(v0, v1));   // two columns each
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
#endif

#include "cpu/isa/vectors_interface.h"
