// Ops between the products of a pass, row by row: a row's result depends only on that row.

#pragma once

#include <cstdint>

namespace dflash {

struct elementwise_kernels {
    // out = a + b; out may be a or b
    void (*add)(const float * a, const float * b, float * out, int64_t n);
    // out = x / sqrt(mean(x^2) + eps) * weight; out may be x
    void (*rms_norm)(const float * x, const float * weight, float * out, int64_t n, float eps);
    // Rotates the pairs (x[i], x[half + i]) by the angles with these cosines and sines; out may be x
    void (*rotate)(const float * x, const float * cosines, const float * sines, float * out, int64_t half);
};

}   // namespace dflash
