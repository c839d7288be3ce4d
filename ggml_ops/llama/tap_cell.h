// A cell of a tap store. No llama.cpp types.

#pragma once

#include <cstdint>
#include <memory>

namespace dflash {

// Its number. Copies hold the same cell; it is free when the last of them is gone.
using tap_cell = std::shared_ptr<const int32_t>;

}   // namespace dflash
