// RoPE of pairs half a head apart (NeoX), row by row. Cosines and sines are computed by ggml (with its scaling and
// factors) and cached, because all layers of a pass rotate the same positions the same way.

#pragma once

#include "ggml.h"

#include <cstdint>

struct ggml_compute_params;

namespace dflash {

// Whether this CPU has a kernel for the op; otherwise ggml computes it.
bool rope_fits(const ggml_tensor * op);
void rope_compute(const ggml_compute_params * params, ggml_tensor * op);

// The rotation of a ROPE op, for the thread that created it. Valid until this thread creates another.
class rotation {
    const ggml_tensor * rope_;
    const float *       table_;   // [position][cosines, sines]

  public:
    explicit rotation(const ggml_tensor * rope);

    // Rotates row i of the op.
    void compute_row(int64_t i) const;
};

}   // namespace dflash
