// Values of a normal distribution, the same on each run.

#pragma once

#include <random>
#include <vector>

inline std::vector<float> normal(size_t n, float scale, int seed) {
    std::mt19937                    random(seed);
    std::normal_distribution<float> one(0.0f, scale);
    std::vector<float>              x(n);
    for (float & value : x) {
        value = one(random);
    }
    return x;
}
