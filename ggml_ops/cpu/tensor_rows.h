// Rows of a tensor of up to four dimensions, numbered consecutively.

#pragma once

#include "ggml.h"

#include <cstdint>

namespace dflash {

inline char * row_of(const ggml_tensor * t, int64_t i) {
    const int64_t i1 = i % t->ne[1], i2 = i / t->ne[1] % t->ne[2], i3 = i / (t->ne[1] * t->ne[2]);
    return (char *) t->data + i1 * t->nb[1] + i2 * t->nb[2] + i3 * t->nb[3];
}

// Whether t has floats that are contiguous within a row.
inline bool is_plain(const ggml_tensor * t) { return t->type == GGML_TYPE_F32 && t->nb[0] == sizeof(float); }

}   // namespace dflash
