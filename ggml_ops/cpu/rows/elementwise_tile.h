// Row by row steps of row_steps.h. Included once per instruction set, behind its simd_<set>.h.

SIMD void add(const float * a, const float * b, float * out, int64_t n) {
    const simd::f one = simd::set1(1.0f);
    int64_t       i   = 0;
    for (; i + simd::W <= n; i += simd::W) {
        simd::store(out + i, simd::fma(simd::load(a + i), one, simd::load(b + i)));
    }
    for (; i < n; ++i) {
        out[i] = a[i] + b[i];
    }
}

SIMD void norm(const float * x, const float * weight, float * out, int64_t n, float eps) {
    constexpr int SUMS =
        4;   // that do not wait for each other; and many short sums are closer to the true one than one long
    simd::f sums[SUMS] = { simd::set1(0.0f), simd::set1(0.0f), simd::set1(0.0f), simd::set1(0.0f) };
    int64_t i          = 0;
    for (; i + SUMS * simd::W <= n; i += SUMS * simd::W) {
        for (int s = 0; s < SUMS; ++s) {
            const simd::f v = simd::load(x + i + s * simd::W);
            sums[s]         = simd::fma(v, v, sums[s]);
        }
    }
    const simd::f one = simd::set1(1.0f);
    double        sum = simd::sum(simd::fma(simd::fma(sums[0], one, sums[1]), one, simd::fma(sums[2], one, sums[3])));
    for (; i < n; ++i) {
        sum += x[i] * x[i];
    }
    const float   scale = 1.0f / std::sqrt((float) (sum / n) + eps);
    const simd::f all   = simd::set1(scale);
    for (i = 0; i + simd::W <= n; i += simd::W) {
        simd::store(out + i, simd::mul(simd::mul(simd::load(x + i), all), simd::load(weight + i)));
    }
    for (; i < n; ++i) {
        out[i] = x[i] * scale * weight[i];
    }
}

SIMD void turn(const float * x, const float * cosines, const float * sines, float * out, int64_t half) {
    const simd::f minus = simd::set1(-1.0f);
    int64_t       i     = 0;
    for (; i + simd::W <= half; i += simd::W) {
        const simd::f a = simd::load(x + i), b = simd::load(x + half + i), c = simd::load(cosines + i),
                      s = simd::load(sines + i);
        simd::store(out + i, simd::fma(b, simd::mul(minus, s), simd::mul(a, c)));
        simd::store(out + half + i, simd::fma(b, c, simd::mul(a, s)));
    }
    for (; i < half; ++i) {
        const float a = x[i], b = x[half + i];
        out[i]        = a * cosines[i] - b * sines[i];
        out[half + i] = a * sines[i] + b * cosines[i];
    }
}
