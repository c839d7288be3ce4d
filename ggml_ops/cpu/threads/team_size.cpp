#include "cpu/threads/team_size.h"

#include <algorithm>
#include <numeric>

namespace dflash {

int team_size::choose(uint64_t kind, int64_t now) {
    if (tried_.empty() && (size_ < most_ ? now >= next_larger_ : is_late_ && size_ > 1 && worked_ >= next_smaller_)) {
        begin_trial();
    }
    if (tried_.empty()) {
        return size_;
    }
    auto & found = kinds_[kind];   // the size with the fewest graphs is next
    found.resize(tried_.size());
    const auto next =
        std::min_element(found.begin(), found.end(), [](const times & a, const times & b) { return a.n < b.n; });
    return tried_[next - found.begin()];
}

void team_size::observe(uint64_t kind, int size, int64_t duration, int64_t late, int64_t now) {
    worked_ += duration;
    if (!tried_.empty()) {
        auto & found = kinds_[kind];
        found.resize(tried_.size());
        const size_t at = std::find(tried_.begin(), tried_.end(), size) - tried_.begin();
        if (at < tried_.size()) {
            found[at].sum += duration;
            ++found[at].n;
        }
        ++n_graphs_;
        end_trial(now);
        return;
    }
    window_ += duration;
    late_ += late;
    if (window_ < WINDOW) {
        return;
    }
    is_late_ = (double) late_ > LATE * (double) window_;
    window_ = late_ = 0;
}

void team_size::begin_trial() {
    tried_ = { size_ };
    for (int smaller = size_ - 1; is_late_ && smaller >= std::max(1, size_ / 2); --smaller) {
        tried_.push_back(smaller);
    }
    if (size_ < most_) {
        tried_.push_back(all_next_ ? most_ : size_ + 1);
        all_next_ = !all_next_;
    }
    n_graphs_ = 0;
    kinds_.clear();
}

void team_size::end_trial(int64_t now) {
    const int           n_sizes = (int) tried_.size();
    std::vector<double> total(n_sizes, 0);   // over graphs that all sizes have computed
    int                 n_rounds = 0;
    for (const auto & [kind, found] : kinds_) {
        const auto few =
            std::min_element(found.begin(), found.end(), [](const times & a, const times & b) { return a.n < b.n; });
        n_rounds += few->n;
        for (int i = 0; few->n > 0 && i < n_sizes; ++i) {
            total[i] += (double) few->n * (double) found[i].sum / found[i].n;
        }
    }
    const double compared = std::accumulate(total.begin(), total.end(), 0.0);
    const bool   enough   = compared >= (double) (TRIAL * n_sizes) && n_rounds >= MIN_ROUNDS;
    if (!enough && n_graphs_ < MOST * n_sizes) {
        return;
    }
    const int  best   = (int) (std::min_element(total.begin(), total.end()) - total.begin());
    const bool better = n_rounds >= MIN_ROUNDS && total[best] < (tried_[best] < size_ ? GAIN : 1.0) * total[0];
    const auto lost   = (int64_t) (compared - n_sizes * total[best]);
    const auto rest   = std::clamp((int64_t) ((double) lost / COST), MIN_REST, MAX_REST);
    size_             = better ? tried_[best] : size_;
    next_larger_      = now + (better ? SHORT_REST : rest);
    next_smaller_     = worked_ + (better ? SHORT_REST : rest);
    tried_.clear();
    is_late_ = false;
    window_ = late_ = 0;
}

}   // namespace dflash
