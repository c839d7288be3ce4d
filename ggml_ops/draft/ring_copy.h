// The contents of a slot's K/V ring, on the host, with the history before it. No llama.cpp types.

#pragma once

#include "base/raw_bytes.h"
#include "draft/kv_history.h"

#include <cstddef>
#include <cstdint>

namespace dflash {

// K of every layer by position, then V.
struct ring_copy {
    int32_t    begin = 0, end = 0;   // positions
    raw_bytes  data;
    kv_history past;   // of positions before `begin`

    size_t bytes() const { return data.size() + past.bytes(); }
};

}   // namespace dflash
