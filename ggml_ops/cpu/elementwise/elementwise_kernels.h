// The kernels of elementwise.h. Included by isa/<set>.cpp after its vectors.

ISA_FUNCTION void add(const float * a, const float * b, float * out, int64_t n) {
    const simd::f32 one = simd::set1(1.0f);
    int64_t         i   = 0;
    for (; i + simd::W <= n; i += simd::W) {
        simd::store(out + i, simd::fma(simd::load_f32(a + i), one, simd::load_f32(b + i)));
    }
    for (; i < n; ++i) {
        out[i] = a[i] + b[i];
    }
}

ISA_FUNCTION void rms_norm(const float * x, const float * weight, float * out, int64_t n, float eps) {
    // independent sums do not wait for each other, and several short sums are more accurate than one long sum
    constexpr int SUMS       = 4;
    simd::f32     sums[SUMS] = { simd::set1(0.0f), simd::set1(0.0f), simd::set1(0.0f), simd::set1(0.0f) };
    int64_t       i          = 0;
    for (; i + SUMS * simd::W <= n; i += SUMS * simd::W) {
        for (int s = 0; s < SUMS; ++s) {
            const simd::f32 v = simd::load_f32(x + i + s * simd::W);
            sums[s]           = simd::fma(v, v, sums[s]);
        }
    }
    const simd::f32 one = simd::set1(1.0f);
    double sum = simd::reduce_add(simd::fma(simd::fma(sums[0], one, sums[1]), one, simd::fma(sums[2], one, sums[3])));
    for (; i < n; ++i) {
        sum += x[i] * x[i];
    }
    const float     scale  = 1.0f / std::sqrt((float) (sum / n) + eps);
    const simd::f32 scales = simd::set1(scale);
    for (i = 0; i + simd::W <= n; i += simd::W) {
        simd::store(out + i, simd::mul(simd::mul(simd::load_f32(x + i), scales), simd::load_f32(weight + i)));
    }
    for (; i < n; ++i) {
        out[i] = x[i] * scale * weight[i];
    }
}

ISA_FUNCTION void rotate(const float * x, const float * cosines, const float * sines, float * out, int64_t half) {
    const simd::f32 minus_one = simd::set1(-1.0f);
    int64_t         i         = 0;
    for (; i + simd::W <= half; i += simd::W) {
        const simd::f32 a = simd::load_f32(x + i), b = simd::load_f32(x + half + i), c = simd::load_f32(cosines + i),
                        s = simd::load_f32(sines + i);
        simd::store(out + i, simd::fma(b, simd::mul(minus_one, s), simd::mul(a, c)));
        simd::store(out + half + i, simd::fma(b, c, simd::mul(a, s)));
    }
    for (; i < half; ++i) {
        const float a = x[i], b = x[half + i];
        out[i]        = a * cosines[i] - b * sines[i];
        out[half + i] = a * sines[i] + b * cosines[i];
    }
}
