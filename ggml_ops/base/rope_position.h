// Where a row stands for M-RoPE.

#pragma once

#include <array>
#include <cstdint>

namespace dflash {

// In time, height and width; all the same for text.
using rope_position = std::array<int32_t, 3>;

}   // namespace dflash
