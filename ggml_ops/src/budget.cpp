#include "budget.h"

#include <algorithm>
#include <cmath>

namespace dflash {

// ---- cost_curve ----

void cost_curve::observe(int32_t rows, double ms) {
    if (!(ms > 0)) {
        return;
    }
    double & point = points_.try_emplace(rows, ms).first->second;
    // One slow pass (a page fault, another process) must not change the choice: clip, then average.
    point += 0.1 * (std::min(ms, 2.0 * point) - point);
}

double cost_curve::at(int32_t rows) const {
    if (points_.empty()) {
        return 0;
    }
    const auto hi = points_.lower_bound(rows);
    if (hi == points_.begin()) {
        return hi->second;
    }
    if (hi == points_.end()) {  // beyond the last point: its slope from the origin
        const auto & last = *points_.rbegin();
        return last.second * rows / last.first;
    }
    if (hi->first == rows) {
        return hi->second;
    }
    const auto   lo = std::prev(hi);
    const double f  = double(rows - lo->first) / (hi->first - lo->first);
    return lo->second + f * (hi->second - lo->second);
}

// ---- calibration ----

// Bins are narrow where it matters: near 0 and near 1, evenly in log-odds between.
int32_t calibration::bin(float prob) {
    const double p = std::clamp((double) prob, 1e-4, 1.0 - 1e-4);
    const double x = std::log(p / (1.0 - p));
    return std::clamp((int32_t) std::floor((x + 6.0)), 0, N_BINS - 1);
}

// The drafter's own probability counts as this many observations.
static constexpr double PRIOR_WEIGHT = 6;

float calibration::apply(float prob) const {
    const counts & c = bins_[bin(prob)];
    return (float) ((PRIOR_WEIGHT * prob + c.accepted) / (PRIOR_WEIGHT + c.seen));
}

void calibration::observe(float prob, bool accepted) {
    counts & c = bins_[bin(prob)];
    c.accepted = 0.99 * c.accepted + accepted;
    c.seen     = 0.99 * c.seen + 1;
}

void calibration::fade(double weight) {
    for (counts & c : bins_) {
        const double f = std::min(1.0, weight / std::max(1e-9, c.seen));
        c.accepted *= f;
        c.seen     *= f;
    }
}

// ---- choice of nodes ----

node_choice choose_nodes(const std::vector<std::vector<float>> & values, const cost_curve & verify, double fixed_ms, int32_t max_rows, last_pass previous) {
    const int32_t n_slots = (int32_t) values.size();
    struct item { float value; int32_t slot; int32_t index; };
    std::vector<item> items;
    for (int32_t s = 0; s < n_slots; ++s) {
        for (int32_t i = 0; i < (int32_t) values[s].size(); ++i) {
            items.push_back({ values[s][i], s, i });
        }
    }
    // Equal values keep a slot's own order, so that a prefix of the list is a prefix of every tree.
    std::sort(items.begin(), items.end(), [](const item & a, const item & b) {
        return a.value != b.value ? a.value > b.value : a.index != b.index ? a.index < b.index : a.slot < b.slot;
    });

    node_choice best;
    double gain = n_slots;
    const int32_t last = std::min((int32_t) items.size(), std::max(0, max_rows - n_slots));
    for (int32_t k = 0; k <= last; ++k) {
        if (k > 0) {
            gain += items[k - 1].value;
        }
        const int32_t rows = n_slots + k;
        if (k > 0 && k < last && rows % 4 != 0 && rows != previous.rows && !verify.points().count(rows)) {
            continue;
        }
        const double ms   = fixed_ms + verify.at(rows) + (rows == previous.rows ? 0.0 : previous.rebuild_ms);
        const double rate = ms > 0 ? gain / ms : gain;
        if (k == 0 || rate > best.rate) {
            best.n_nodes = rows;
            best.gain    = gain;
            best.rate    = rate;
        }
    }
    best.per_slot.assign(n_slots, 1);
    for (int32_t k = 0; k < best.n_nodes - n_slots; ++k) {
        ++best.per_slot[items[k].slot];
    }
    return best;
}

// ---- survival ----

void survival::observe(int32_t drafted, int32_t accepted) {
    for (int32_t d = 1; d <= std::min({ drafted, accepted + 1, MAX_DEPTH }); ++d) {
        counts & c = depths_[d];
        c.tried   = 0.97 * c.tried + 1;
        c.reached = 0.97 * c.reached + (d <= accepted);
    }
}

double survival::at(int32_t depth) const {
    // Conditional rates with a hopeful prior (a new slot shall draft), pooled with the depth before: deep positions are
    // seen seldom and differ little from their neighbours.
    double p = 1, previous = 0.8;
    for (int32_t d = 1; d <= std::min(depth, MAX_DEPTH); ++d) {
        const counts & c = depths_[d];
        previous = (c.reached + 2 * previous) / (c.tried + 2);
        p *= previous;
    }
    return p;
}

void survival::fade(double weight) {
    for (counts & c : depths_) {
        const double f = std::min(1.0, weight / std::max(1e-9, c.tried));
        c.reached *= f;
        c.tried   *= f;
    }
}

// ---- choice of the block length ----

length_choice choose_length(const std::vector<const survival *> & slots, const std::vector<int32_t> & lengths, const cost_curve & verify, const cost_curve & draft, double other_ms) {
    const int32_t n_slots = (int32_t) slots.size();
    length_choice best;
    if (n_slots == 0) {
        return best;
    }
    std::vector<double> gained(1, n_slots);  // gained[d]: expected tokens with d draft tokens per slot
    std::vector<length_choice> choices;
    for (const int32_t length : lengths) {
        while ((int32_t) gained.size() < length) {
            double sum = gained.back();
            for (const survival * s : slots) {
                sum += s->at((int32_t) gained.size());
            }
            gained.push_back(sum);
        }
        // The chosen trees may be smaller than what was denoised: take the best count, as choose_nodes() will.
        length_choice c;
        for (int32_t n = 2; n <= length; ++n) {
            const double ms   = draft.at(n_slots * length) + verify.at(n_slots * n) + other_ms;
            const double rate = gained[n - 1] / std::max(1e-9, ms);
            if (rate > c.rate) {
                c.rate   = rate;
                c.gain   = gained[n - 1];
                c.length = length;
            }
        }
        choices.push_back(c);
    }
    double top = 0;
    for (const length_choice & c : choices) {
        top = std::max(top, c.rate);
    }
    // Blocks differ more than their mean tells, and a long one can still be cut after denoising: of about equal ones the longest.
    for (const length_choice & c : choices) {
        if (c.rate >= 0.95 * top) {
            best = c;
        }
    }
    return best;
}

// ---- draft_switch ----

bool draft_switch::draft_now() {
    if (rest_ > 0 && --rest_ == 0) {   // a short trial, judged by itself
        tokens_ = ms_ = 0;
        seen_   = 0;
        trial_  = TRIAL;
    }
    return rest_ == 0;
}

void draft_switch::drafted(double tokens, double ms, double plain_rate) {
    tokens_ = 0.9 * tokens_ + tokens;
    ms_     = 0.9 * ms_ + ms;
    if (++seen_ < trial_) {
        return;
    }
    if (rate() < plain_rate) {
        backoff_ = std::clamp(2 * backoff_, MIN_REST, MAX_REST);
        rest_    = backoff_;
    } else {
        backoff_ = 0;
    }
}

void draft_switch::new_text() {
    if (rest_ > 0) {
        rest_ = 1;   // the next step is a trial
    }
}

}  // namespace dflash
