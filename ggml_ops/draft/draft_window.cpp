#include "draft/draft_window.h"

#include <algorithm>

namespace dflash {

// Whether a window of this size would hide something that the usual one shows, or show something that it hides.
bool draft_window::differs(int32_t size, int32_t n_held) const {
    // Less than a quarter is not worth a trial.
    const auto seen = [n_held](int32_t window) { return std::min<int64_t>(window, n_held); };
    const auto a = seen(SIZES[size]), b = seen(SIZES[usual_]);
    return 4 * std::max(a, b) > 5 * std::min(a, b);
}

int32_t draft_window::choose(int32_t n_held) {
    chosen_ = usual_;
    if (recent_ < 0 || n_since_ < period_) {
        return SIZES[chosen_];
    }
    for (int32_t i = 0; i < N; ++i) {
        const int32_t size = (next_ + i) % N;
        if (size != usual_ && differs(size, n_held)) {
            chosen_ = size;
            next_   = size + 1;
            break;
        }
    }
    return SIZES[chosen_];
}

void draft_window::observe(int32_t n_accepted) {
    ++n_since_;
    if (chosen_ != usual_) {
        n_since_ = 0;
        compare(n_accepted - recent_);
        return;
    }
    recent_ = n_accepted;
    short_mean_ += (n_accepted - short_mean_) / 4;
    mean_ += (n_accepted - mean_) / 16;
    if (short_mean_ < 0.5 * mean_) {   // the text may have become too long just now
        period_ = OFTEN;
    }
}

void draft_window::compare(double difference) {
    rival & r = rivals_[chosen_];
    r.n       = std::min(r.n + 1, MEMORY);
    r.gain += (difference - r.gain) / r.n;
    // One trial may be luck; a small gain is not worth what is unlearned by a change.
    if (r.n >= 2 && r.gain > std::max(0.5, 0.15 * mean_)) {
        replace_usual(chosen_);
    } else {
        period_ = r.gain > 0 ? OFTEN : std::min(2 * period_, SELDOM);
    }
}

void draft_window::replace_usual(int32_t size) {
    const rival   found = rivals_[size];
    const int32_t old   = usual_;
    rivals_             = {};
    rivals_[old]        = { found.n, -found.gain };
    mean_               = std::max(0.0, mean_ + found.gain);
    short_mean_         = mean_;
    usual_              = size;
    recent_             = -1;
    period_             = OFTEN;
}

void draft_window::fade() {
    for (rival & r : rivals_) {
        r.n = std::min(r.n, 1.0);
    }
    period_  = OFTEN;
    n_since_ = 0;
    recent_  = -1;
}

}   // namespace dflash
