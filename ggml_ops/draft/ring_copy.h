// What a slot's K/V ring holds, on the host. No llama.cpp types.

#pragma once

#include "base/raw_bytes.h"

#include <cstdint>

namespace dflash {

// K of every layer by position, then V.
struct ring_copy {
    int32_t   begin = 0, end = 0;   // positions
    raw_bytes data;
};

}   // namespace dflash
