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
        if (place >= n || text[place] != next) {   // a hash collision, or an index of another text
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
        // The match may run into the text's end: a repetition goes on repeating.
        const int32_t period = n - best;
        for (int32_t i = 0; i < length; ++i) {
            const int32_t at = best + 1 + i % period;
            found.tokens.push_back(at < n ? text[at] : next);
        }
    }
    return found;
}

quotation_odds quotation_odds::of_lookup() {
    return quotation_odds(
        { { 3, 0.5, {} }, { 4, 0.6, {} }, { 6, 0.7, {} }, { 10, 0.8, {} }, { 16, 0.85, {} }, { INT32_MAX, 0.9, {} } });
}

quotation_odds quotation_odds::of_prediction() {
    return quotation_odds({ { 0, 0.4, {} }, { 1, 0.6, {} }, { 2, 0.8, {} }, { 4, 0.9, {} }, { 8, 0.93, {} },
        { 16, 0.95, {} }, { INT32_MAX, 0.97, {} } });
}

size_t quotation_odds::index(int32_t matched) const {
    const auto it = std::find_if(bins_.begin(), bins_.end() - 1, [&](const bin & b) { return matched <= b.most; });
    return it - bins_.begin();
}

static constexpr double PRIOR_WEIGHT = 8, MOST_CERTAIN = 0.998;

float quotation_odds::at(int32_t matched) const {
    const bin & b = bins_[index(matched)];
    return (float) std::min(MOST_CERTAIN, (PRIOR_WEIGHT * b.prior + b.seen.accepted) / (PRIOR_WEIGHT + b.seen.trials));
}

void quotation_odds::observe(int32_t matched, int32_t offered, int32_t accepted) {
    tally &       c      = bins_[index(matched)].seen;
    const int32_t tested = std::min(offered, accepted + 1);
    c.trials             = 0.98 * c.trials + tested;
    c.accepted           = 0.98 * c.accepted + std::min(offered, accepted);
}

void quotation_odds::fade(double weight) {
    for (bin & b : bins_) {
        b.seen.fade(weight);
    }
}

}   // namespace dflash
