// How the panels of a product are distributed among threads (threads/tasks.h).

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace dflash {

// Three quarters of the panels are in one task per thread, then half of the rest, and so on. So threads read long
// stretches of memory and still finish together, unless one has less than 0.6 times (of two) or 0.75 times (of many)
// the speed of the others. Tasks are multiples of `grain` panels.
class panel_tasks {
    // Bytes of weights, at least, that a task multiplies: each begins without prefetched data.
    static constexpr size_t MIN_TASK = 64 << 10;

    int64_t n_panels_;
    int     n_threads_, grain_, n_levels_ = 1;

  public:
    panel_tasks(int64_t n_panels, int n_threads, size_t panel_bytes, int grain = 4) :
        n_panels_(n_panels), n_threads_(n_threads), grain_(grain) {
        const int64_t smallest = std::max<int64_t>(grain, MIN_TASK / panel_bytes);
        while (left_before(n_levels_) >= smallest * n_threads) {
            ++n_levels_;
        }
    }

    int64_t count() const { return (int64_t) n_levels_ * n_threads_; }

    // The first panel of a task, which ends where the next one begins; of task count(): the number of panels.
    int64_t begin(int64_t task) const {
        const int64_t level = task / n_threads_, start = start_of(level);
        return level == n_levels_
                   ? n_panels_
                   : start + (start_of(level + 1) - start) / grain_ * (task % n_threads_) / n_threads_ * grain_;
    }

  private:
    int64_t left_before(int level) const { return level == 0 ? n_panels_ : n_panels_ >> (level + 1); }
    // All threads get the same share of a level.
    int64_t start_of(int64_t level) const {
        return level == n_levels_
                   ? n_panels_
                   : (n_panels_ - left_before((int) level)) / (grain_ * n_threads_) * (grain_ * n_threads_);
    }
};

}   // namespace dflash
