// NEON, as every 64-bit ARM has it (simd.h)

#define SIMD        static
#define SIMD_INLINE __attribute__((always_inline)) static inline

struct simd {
    using f                = float32x4_t;
    using integers         = int64x2_t;
    using h                = uint16x8_t;
    static constexpr int W = 4, ROWS = 8;

    SIMD_INLINE f        load(const float * x) { return vld1q_f32(x); }
    SIMD_INLINE f        half(const ggml_fp16_t * x) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(x))); }
    SIMD_INLINE f        bfloat(const uint16_t * x) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(x), 16)); }
    SIMD_INLINE void     store(float * x, f y) { vst1q_f32(x, y); }
    SIMD_INLINE f        set1(float x) { return vdupq_n_f32(x); }
    SIMD_INLINE f        mul(f a, f b) { return vmulq_f32(a, b); }
    SIMD_INLINE f        fma(f a, f b, f c) { return vfmaq_f32(c, a, b); }
    SIMD_INLINE f        max(f a, f b) { return vmaxq_f32(a, b); }
    SIMD_INLINE float    greatest(f a) { return vmaxvq_f32(a); }
    SIMD_INLINE float    sum(f a) { return vaddvq_f32(a); }
    SIMD_INLINE integers zero() { return vdupq_n_s64(0); }
    SIMD_INLINE int64_t  total(integers a) { return vaddvq_s64(a); }
    SIMD_INLINE integers fixed(integers sum, f p) {
        const int64x2_t low  = vcvtnq_s64_f64(vmulq_n_f64(vcvt_f64_f32(vget_low_f32(p)), 0x1p40)),
                        high = vcvtnq_s64_f64(vmulq_n_f64(vcvt_high_f64_f32(p), 0x1p40));
        return vaddq_s64(sum, vaddq_s64(low, high));
    }
    SIMD_INLINE f exp(f x) {
        const uint32x4_t big   = vcgeq_f32(x, set1(-87.0f));
        const f          n     = vrndnq_f32(mul(x, set1(0x1.715476p+0f)));
        const f          r     = fma(n, set1(-0x1.7f7d1cp-20f), fma(n, set1(-0x1.62e4p-1f), x));
        const int32x4_t  power = vshlq_n_s32(vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127)), 23);
        return vreinterpretq_f32_u32(vandq_u32(
            big, vreinterpretq_u32_f32(mul(DFLASH_EXP_POLYNOMIAL(fma, set1, r), vreinterpretq_f32_s32(power)))));
    }
    SIMD_INLINE void transpose(const float * in, int64_t in_stride, float * out, int64_t out_stride) {
        const float32x4x2_t a = vtrnq_f32(load(in), load(in + in_stride)),
                            b = vtrnq_f32(load(in + 2 * in_stride), load(in + 3 * in_stride));
        for (int i = 0; i < 2; ++i) {
            store(out + i * out_stride, vcombine_f32(vget_low_f32(a.val[i]), vget_low_f32(b.val[i])));
            store(out + (2 + i) * out_stride, vcombine_f32(vget_high_f32(a.val[i]), vget_high_f32(b.val[i])));
        }
    }
    SIMD_INLINE h rows(const ggml_fp16_t * in, int64_t) { return vld1q_u16(in); }
    SIMD_INLINE h low_16(h a, h b) { return vzip1q_u16(a, b); }
    SIMD_INLINE h high_16(h a, h b) { return vzip2q_u16(a, b); }
    SIMD_INLINE h low_32(h a, h b) {
        return vreinterpretq_u16_u32(vzip1q_u32(vreinterpretq_u32_u16(a), vreinterpretq_u32_u16(b)));
    }
    SIMD_INLINE h high_32(h a, h b) {
        return vreinterpretq_u16_u32(vzip2q_u32(vreinterpretq_u32_u16(a), vreinterpretq_u32_u16(b)));
    }
    SIMD_INLINE h low_64(h a, h b) {
        return vreinterpretq_u16_u64(vzip1q_u64(vreinterpretq_u64_u16(a), vreinterpretq_u64_u16(b)));
    }
    SIMD_INLINE h high_64(h a, h b) {
        return vreinterpretq_u16_u64(vzip2q_u64(vreinterpretq_u64_u16(a), vreinterpretq_u64_u16(b)));
    }
    SIMD_INLINE void store_halves(ggml_fp16_t * x, h y) { vst1q_u16(x, y); }
};
