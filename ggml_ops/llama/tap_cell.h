// A cell of a tap store. No llama.cpp types.

#pragma once

#include <cstdint>
#include <memory>

namespace dflash {

// The cell's number. Copies refer to the same cell, which is free once all of them are gone.
using tap_cell = std::shared_ptr<const int32_t>;

}   // namespace dflash
