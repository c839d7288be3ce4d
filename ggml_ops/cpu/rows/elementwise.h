// What a pass does row by row between its products, with vectors: a row's result depends on nothing but the row.

#pragma once

#include <cstdint>

namespace dflash {

struct row_steps {
    // out = a + b; out may be a or b
    void (*add)(const float * a, const float * b, float * out, int64_t n);
    // out = x / sqrt(mean(x^2) + eps) * weight (RMS norm); out may be x
    void (*norm)(const float * x, const float * weight, float * out, int64_t n, float eps);
    // The pairs (x[i], x[half + i]) turned by the angles of which cosines and sines are given; out may be x
    void (*turn)(const float * x, const float * cosines, const float * sines, float * out, int64_t half);
};

// This CPU's, null if it has none.
const row_steps * row_steps_here();

}   // namespace dflash
