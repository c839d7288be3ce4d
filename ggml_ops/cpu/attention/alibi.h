// The slopes of ALiBi: by head, what a mask's values are multiplied by.

#pragma once

#include <cmath>
#include <cstdint>

namespace dflash {

// Powers of `low` for the first n_low heads (a power of two), of `high` for the rest; as in ggml's softmax.
struct alibi_slopes {
    bool    is_on = false;
    int64_t n_low = 0;
    float   low = 1, high = 1;

    alibi_slopes() = default;
    // max_bias: the op's parameter; 0: all slopes are 1.
    alibi_slopes(float max_bias, int64_t n_heads) :
        is_on(max_bias > 0.0f), n_low((int64_t) 1 << (int) std::floor(std::log2((double) n_heads))),
        low(std::pow(2.0f, -max_bias / n_low)), high(std::pow(2.0f, -max_bias / 2.0f / n_low)) {}

    float of(int64_t head) const {
        return !is_on ? 1.0f : head < n_low ? powf(low, head + 1) : powf(high, 2 * (head - n_low) + 1);
    }
};

}   // namespace dflash
