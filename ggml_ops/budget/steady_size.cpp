#include "budget/steady_size.h"

#include <algorithm>
#include <limits>

namespace dflash {

int32_t steady_size::choose(int32_t narrow, int32_t most, const cost_curve & costs, double change_ms) const {
    if (last_ > narrow && last_ <= most) {
        const double more_ms  = costs.at(last_) - costs.at(narrow);
        const bool   is_cheap = more_ms <= CHEAP * costs.at(narrow);
        if (wasted_ms_ + more_ms <= std::max(change_ms, is_cheap ? LEAST_COST * costs.at(1) : 0.0)) {
            return last_;
        }
    }
    const int32_t size = std::max(narrow, needed_);
    return size <= most ? size : narrow;
}

void steady_size::observe(int32_t size, int32_t narrow, const cost_curve & costs) {
    if (size != last_ || size <= narrow) {
        needed_    = 0;
        wasted_ms_ = 0;
    }
    if (size > narrow) {
        needed_ = std::max(needed_, narrow);
        wasted_ms_ += std::max(0.0, costs.at(size) - costs.at(narrow));
    }
    last_ = size;
}

void steady_size::forget() {
    last_ = needed_ = 0;
    wasted_ms_      = 0;
}

void steady_size::narrow_once() {
    needed_    = 0;
    wasted_ms_ = std::numeric_limits<double>::infinity();
}

}   // namespace dflash
