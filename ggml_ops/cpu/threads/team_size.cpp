#include "cpu/threads/team_size.h"

#include <algorithm>
#include <numeric>

namespace dflash {

int team_size::choose(uint64_t kind, int64_t now) {
    if (tried_.empty() && (size_ < most_ ? now >= next_larger_ : is_late() && size_ > 1 && worked_ >= next_smaller_)) {
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
        drop_hopeless();
        end_trial(now);
        return;
    }
    window_ += duration;
    late_ += late;
    if (window_ < WINDOW) {
        return;
    }
    n_late_ = (double) late_ > LATE * (double) window_ ? n_late_ + 1 : 0;
    window_ = late_ = 0;
}

void team_size::begin_trial() {
    tried_ = { size_ };
    for (int smaller = size_ - 1; is_late() && smaller >= std::max(1, size_ / 2); --smaller) {
        tried_.push_back(smaller);
    }
    if (size_ < most_) {
        tried_.push_back(all_next_ ? most_ : size_ + 1);
        all_next_ = !all_next_;
    }
    n_graphs_ = 0;
    dropped_  = 0;
    kinds_.clear();
}

team_size::comparison team_size::compared() const {
    comparison all{ std::vector<double>(tried_.size(), 0), 0 };
    for (const auto & [kind, found] : kinds_) {
        const auto few =
            std::min_element(found.begin(), found.end(), [](const times & a, const times & b) { return a.n < b.n; });
        all.n_rounds += few->n;
        for (size_t i = 0; few->n > 0 && i < found.size(); ++i) {
            all.total[i] += (double) few->n * (double) found[i].sum / found[i].n;
        }
    }
    return all;
}

void team_size::drop_hopeless() {
    const comparison found = compared();
    for (size_t i = tried_.size() - 1; i > 0; --i) {
        const double lost = found.total[i] - found.total[0];
        if (lost > MOST_LOST && found.total[i] > HOPELESS * found.total[0]) {
            dropped_ += lost;
            tried_.erase(tried_.begin() + (int64_t) i);
            for (auto & kind : kinds_) {
                kind.second.erase(kind.second.begin() + (int64_t) i);
            }
        }
    }
}

void team_size::end_trial(int64_t now) {
    const int        n_sizes  = (int) tried_.size();
    const comparison found    = compared();
    const double     compared = std::accumulate(found.total.begin(), found.total.end(), 0.0);
    const bool       enough   = compared >= (double) (TRIAL * n_sizes) && found.n_rounds >= MIN_ROUNDS;
    if (n_sizes > 1 && !enough && n_graphs_ < MOST * n_sizes) {
        return;
    }
    const auto   best   = std::min_element(found.total.begin(), found.total.end());
    const int    chosen = tried_[best - found.total.begin()];
    const bool   better = found.n_rounds >= MIN_ROUNDS && *best < (chosen < size_ ? GAIN : 1.0) * found.total[0];
    const double lost   = dropped_ + compared - n_sizes * *best;
    const auto   rest   = better ? SHORT_REST : std::clamp((int64_t) (lost / COST), MIN_REST, MAX_REST);
    size_               = better ? chosen : size_;
    next_larger_        = now + rest;
    next_smaller_       = worked_ + rest;
    tried_.clear();
    n_late_ = 0;
    window_ = late_ = 0;
}

}   // namespace dflash
