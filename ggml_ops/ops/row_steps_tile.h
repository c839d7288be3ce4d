// Row by row steps of row_steps.h. Included once per instruction set, behind its simd_<set>.h.

SIMD void add(const float * a, const float * b, float * out, int64_t n) {
    const simd::f one = simd::set1(1.0f);
    int64_t i = 0;
    for (; i + simd::W <= n; i += simd::W) {
        simd::store(out + i, simd::fma(simd::load(a + i), one, simd::load(b + i)));
    }
    for (; i < n; ++i) {
        out[i] = a[i] + b[i];
    }
}

SIMD void norm(const float * x, const float * weight, float * out, int64_t n, float eps) {
    constexpr int SUMS = 4;   // that do not wait for each other; and many short sums are closer to the true one than one long
    simd::f sums[SUMS] = { simd::set1(0.0f), simd::set1(0.0f), simd::set1(0.0f), simd::set1(0.0f) };
    int64_t i = 0;
    for (; i + SUMS * simd::W <= n; i += SUMS * simd::W) {
        for (int s = 0; s < SUMS; ++s) {
            const simd::f v = simd::load(x + i + s * simd::W);
            sums[s] = simd::fma(v, v, sums[s]);
        }
    }
    double sum = 0.0;
    for (const simd::f & s : sums) {
        sum += simd::sum(s);
    }
    for (; i < n; ++i) {
        sum += x[i] * x[i];
    }
    const float scale = 1.0f / std::sqrt((float) (sum / n) + eps);
    const simd::f all = simd::set1(scale);
    for (i = 0; i + simd::W <= n; i += simd::W) {
        simd::store(out + i, simd::mul(simd::mul(simd::load(x + i), all), simd::load(weight + i)));
    }
    for (; i < n; ++i) {
        out[i] = x[i] * scale * weight[i];
    }
}
