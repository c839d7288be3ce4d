#include "draft/prediction.h"

#include <algorithm>

namespace dflash {

prediction::prediction(std::vector<int32_t> tokens) : tokens_(std::move(tokens)), met_(tokens_.size()) {
    for (int32_t i = 0; i < size(); ++i) {
        places_[tokens_[i]].push_back(i);
    }
}

void prediction::advance(int32_t token) {
    if (tokens_.empty()) {
        return;
    }
    if ((int32_t) newest_.size() == MAX_MATCH) {
        newest_.erase(newest_.begin());
    }
    newest_.push_back(token);
    if (next_ >= 0 && next_ < size() && tokens_[next_] == token) {
        ++run_;
        ++next_;
    } else if (const int32_t place = search(); place >= 0) {
        run_  = matched(place);
        next_ = place + 1;
    } else {
        run_  = 0;
        next_ = next_ >= 0 && next_ < size() && ++lost_ <= MAX_LOST ? next_ + 1 : -1;
    }
    if (run_ >= CERTAIN) {
        const int32_t first = next_ - run_;
        meet(known_ <= next_ ? std::max(known_, first) : first, next_);   // else it went back
        known_ = next_;
        lost_  = 0;
    }
}

void prediction::find(int32_t length, continuations & found) const {
    if (next_ < 0 || next_ >= size() || length < 1) {
        return;
    }
    found.begin(quote_source::prediction, run_);
    for (int32_t i = next_; i < std::min(next_ + length, size()); ++i) {
        found.push(tokens_[i]);
    }
}

int32_t prediction::matched(int32_t place) const {
    int32_t n = 0;
    while (n < (int32_t) newest_.size() && place >= n && tokens_[place - n] == newest_[newest_.size() - 1 - n]) {
        ++n;
    }
    return n;
}

// The longest match; of equally long ones the next after the last certain place, then those before it.
int32_t prediction::search() const {
    const auto found = places_.find(newest_.back());
    if (found == places_.end()) {
        return -1;
    }
    const std::vector<int32_t> & places = found->second;
    const size_t n = places.size(), start = std::lower_bound(places.begin(), places.end(), known_) - places.begin();
    int32_t      best = -1, longest = 0;
    for (size_t i = 0; i < std::min<size_t>(n, MAX_TRIED); ++i) {
        const int32_t place = places[(start + i) % n], length = matched(place);
        const bool    near = place >= known_ && place < known_ + NEAR;
        if (length > longest && (near || length >= CERTAIN)) {
            longest = length;
            best    = place;
        }
    }
    return best;
}

void prediction::meet(int32_t first, int32_t end) {
    for (int32_t i = first; i < end; ++i) {
        n_met_ += !met_[i];
        met_[i] = true;
    }
}

}   // namespace dflash
