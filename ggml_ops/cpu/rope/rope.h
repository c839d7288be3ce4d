// RoPE of pairs that lie half a head apart (NeoX), row by row. Cosines and sines are computed by ggml (with its scaling
// and factors) and kept, because all layers of a pass rotate the same positions in the same way.

#pragma once

#include "ggml.h"

#include <cstddef>
#include <cstdint>
#include <utility>

struct ggml_compute_params;

namespace dflash {

// Rows [begin, end) of n that are this thread's, as ggml divides those of ROPE.
std::pair<int64_t, int64_t> rows_of_thread(const ggml_compute_params * params, int64_t n);

// Whether this CPU has a kernel for the op; ggml computes what it has none for.
bool rope_fits(const ggml_tensor * op);
void rope_compute(const ggml_compute_params * params, ggml_tensor * op);

// The rotation of a ROPE op, for the thread that made it. Valid until this thread makes another.
class rotation {
    const ggml_tensor * rope;
    const float *       table;   // [position][cosines, sines]

  public:
    explicit rotation(const ggml_tensor * rope);

    // Row i of the op.
    void compute_row(int64_t i) const;
};

}   // namespace dflash
