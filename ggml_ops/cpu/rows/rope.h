// RoPE of pairs that lie half a head apart (NeoX), row by row. Sines and cosines are ggml's own (its scaling, factors
// and all); they are kept, so that layers of a pass, which turn the same positions alike, share them.

#pragma once

#include "ggml.h"

#include <cstddef>
#include <cstdint>
#include <utility>

struct ggml_compute_params;

namespace dflash {

// Rows [begin, end) of n that are this thread's, as ggml divides those of ROPE.
std::pair<int64_t, int64_t> my_rows(const ggml_compute_params * params, int64_t n);

// Whether this CPU and this op are served; what is not stays with ggml.
bool rotation_fits(const ggml_tensor * op);
void rotation_compute(const ggml_compute_params * params, ggml_tensor * op);

// What this thread turns the rows of a RoPE by. Valid until it asks for another.
class rotation {
    const ggml_tensor * rope;
    const float *       table;   // [position][cosines, sines]

  public:
    explicit rotation(const ggml_tensor * rope);

    // Row i of the op.
    void turn(int64_t i) const;
};

}   // namespace dflash
