#include "budget/cost_curve.h"

#include <algorithm>

namespace dflash {

int32_t padded_width(int32_t rows) {
    constexpr int32_t LARGE = 64;
    int32_t           width = 1;
    while (width < rows && width < LARGE) {
        width *= 2;
    }
    return rows <= LARGE ? width : (rows + LARGE - 1) / LARGE * LARGE;
}

// Of a width that runs for the first time: what its neighbours say, or what it took if it is the widest so far.
cost_curve::point cost_curve::first_point(int32_t rows, double ms) const {
    if (points_.empty() || width(rows) > points_.rbegin()->first) {
        return { ms, ms, 1 };
    }
    const double measured = at(rows) / trend_;
    return { measured, measured, 0 };
}

void cost_curve::set(int32_t rows, double ms) {
    points_[rows] = { ms, ms, 0 };
    bound_unseen();
}

// What a pass costs at most as the other points say.
double cost_curve::most(int32_t rows, bool only_seen) const {
    constexpr double WIDER = 1.5;   // 15 rows may cost more than 16, but not much more
    double           ms    = INFINITY;
    for (const auto & [other, p] : points_) {
        if (bounded_ && other != rows && (p.n_seen > 0 || !only_seen)) {
            const int32_t n_passes = (rows + other - 1) / other;
            ms                     = std::min(ms, value(p) * (other > rows ? WIDER : n_passes));
        }
    }
    return ms;
}

void cost_curve::bound_unseen() {
    for (auto & [rows, p] : points_) {
        p.most = p.n_seen > 0 ? INFINITY : most(rows, true);
    }
}

void cost_curve::observe(int32_t rows, double cells, double ms) {
    if (!(ms > 0)) {
        return;
    }
    constexpr double RATE = 0.05, MEASURED = 5;   // passes that what was measured counts for
    const double     bare = std::max(0.5 * ms, ms - per_cell_ * cells);
    point &          seen = points_.try_emplace(width(rows), first_point(rows, bare)).first->second;
    double           old  = value(seen);
    // A single slow pass (a page fault, another process) must not change the choice: clip it, then average.
    ms = std::min(ms, 2.0 * (old + per_cell_ * cells));
    if (cells > 0) {
        // The excess over the point is first attributed to the cells: they explain passes of all widths.
        excess_   = 0.98 * excess_ + (ms - old) * cells;
        square_   = 0.98 * square_ + cells * cells;
        per_cell_ = std::max(0.0, excess_ / square_);
    }
    // On a busy machine cells look expensive, but they never explain a whole pass.
    const double rate = std::max(RATE, 1.0 / (MEASURED + seen.n_seen + 1));
    if (seen.n_seen == 0) {
        seen.is_doubted = seen.measured * trend_ > seen.most;
    }
    seen.ms = std::max(0.1 * ms, old + rate * (ms - per_cell_ * cells - old));
    ++seen.n_seen;
    if (!seen.is_doubted) {
        trend_ += RATE * (std::min(1.0, seen.ms / seen.measured) - trend_);
    }
    bound_unseen();
}

std::map<int32_t, double> cost_curve::points() const {
    std::map<int32_t, double> all;
    for (const auto & [rows, p] : points_) {
        all[rows] = value(p);
    }
    return all;
}

double cost_curve::at(int32_t rows, double cells) const {
    if (points_.empty()) {
        return 0;
    }
    rows                   = width(rows);
    const double attention = per_cell_ * cells;
    const auto   hi        = points_.lower_bound(rows);
    if (hi == points_.begin()) {
        return value(hi->second) + attention;
    }
    if (hi == points_.end()) {   // beyond the last point: a line through the origin
        const auto & [last, at_last] = *points_.rbegin();
        return value(at_last) * rows / last + attention;
    }
    if (hi->first == rows) {
        return value(hi->second) + attention;
    }
    const auto   lo = std::prev(hi);
    const double f  = double(rows - lo->first) / (hi->first - lo->first);
    return value(lo->second) + f * (value(hi->second) - value(lo->second)) + attention;
}

}   // namespace dflash
