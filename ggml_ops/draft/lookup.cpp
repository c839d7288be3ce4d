#include "draft/lookup.h"

#include <algorithm>

namespace dflash {

quotation text_index::find(const std::vector<int32_t> & text, int32_t next, int32_t length) {
    quotation     found;
    const int32_t n = (int32_t) text.size();
    for (int32_t at = (int32_t) before_.size(); at < n; ++at) {
        before_.push_back(-1);
        if (at + 1 >= MIN_MATCH) {
            const auto [it, fresh] = places_.try_emplace(key(text.data() + at), at);
            before_[at]            = fresh ? -1 : it->second;
            it->second             = at;
        }
    }
    if (n + 1 < MIN_MATCH || length < 1) {
        return found;
    }
    int32_t last[MIN_MATCH];
    std::copy(text.end() - (MIN_MATCH - 1), text.end(), last);
    last[MIN_MATCH - 1] = next;
    const auto it       = places_.find(key(last + MIN_MATCH - 1));
    int32_t    place = it == places_.end() ? -1 : it->second, best = -1;
    for (int32_t tried = 0; place >= 0 && tried < MAX_TRIED; ++tried, place = before_[place]) {
        if (place >= n || text[place] != next) {   // another key with the same hash, or an index of another text
            continue;
        }
        int32_t matched = 1;
        while (matched < MAX_MATCH && place >= matched && text[place - matched] == text[n - matched]) {
            ++matched;
        }
        if (matched >= MIN_MATCH && matched > found.matched) {
            found.matched = matched;
            best          = place;
        }
    }
    if (best >= 0) {
        // The text may run into its own end: a repetition goes on repeating.
        const int32_t period = n - best;
        for (int32_t i = 0; i < length; ++i) {
            const int32_t at = best + 1 + i % period;
            found.tokens.push_back(at < n ? text[at] : next);
        }
    }
    return found;
}

int32_t quotation_odds::bin(int32_t matched) {
    return matched <= 3 ? 0 : matched <= 4 ? 1 : matched <= 6 ? 2 : matched <= 10 ? 3 : matched <= 16 ? 4 : 5;
}

// Before anything was seen: short matches are often chance.
static constexpr double PRIOR[] = { 0.5, 0.6, 0.7, 0.8, 0.85, 0.9 }, PRIOR_WEIGHT = 8;

float quotation_odds::at(int32_t matched) const {
    const int32_t b = bin(matched);
    const tally & c = bins_[b];
    return (float) std::min(0.995, (PRIOR_WEIGHT * PRIOR[b] + c.accepted) / (PRIOR_WEIGHT + c.trials));
}

void quotation_odds::observe(int32_t matched, int32_t offered, int32_t accepted) {
    tally &       c      = bins_[bin(matched)];
    const int32_t tested = std::min(offered, accepted + 1);
    c.trials             = 0.98 * c.trials + tested;
    c.accepted           = 0.98 * c.accepted + std::min(offered, accepted);
}

void quotation_odds::fade(double weight) {
    for (tally & c : bins_) {
        c.fade(weight);
    }
}

}   // namespace dflash
