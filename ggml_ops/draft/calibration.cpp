#include "draft/calibration.h"

#include <algorithm>
#include <cmath>

namespace dflash {

// Priors: the drafter's own probability weighs as much as this many observations of a bin, and the bins' estimate as
// much as this many observations of a depth.
static constexpr double BIN_PRIOR = 6, DEPTH_PRIOR = 8;
static constexpr float  MOST = 0.999f;

// Narrow bins near 0 and 1, where it matters; evenly spaced in log-odds.
int32_t calibration::bin(float prob) {
    const float p = std::clamp(prob, 1e-4f, 1.0f - 1e-4f);
    return std::clamp((int32_t) std::floor(std::log(p / (1.0f - p)) + 6.0f), 0, N_BINS - 1);
}

float calibration::of_bin(float prob, bool first) const {
    const tally & c = bins_[first][bin(prob)];
    return (float) ((BIN_PRIOR * prob + c.accepted) / (BIN_PRIOR + c.trials));
}

float calibration::apply(float prob, bool first, int32_t depth) const {
    const tally & d = depths_[level(depth)];
    const double  f = (DEPTH_PRIOR + d.accepted) / (DEPTH_PRIOR + d.trials);
    return std::min((float) (of_bin(prob, first) * f), std::max(prob, MOST));
}

void calibration::observe(float prob, bool first, int32_t depth, bool accepted) {
    tally & d  = depths_[level(depth)];
    d.trials   = 0.98 * d.trials + of_bin(prob, first);
    d.accepted = 0.98 * d.accepted + accepted;
    tally & c  = bins_[first][bin(prob)];
    c.trials   = 0.99 * c.trials + 1;
    c.accepted = 0.99 * c.accepted + accepted;
}

void calibration::fade(double weight) {
    for (auto & row : bins_) {
        for (tally & c : row) {
            c.fade(weight);
        }
    }
    for (tally & d : depths_) {
        d.fade(weight);
    }
}

}   // namespace dflash
