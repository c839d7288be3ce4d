#include "draft/corpus.h"

#include <algorithm>

namespace dflash {

static constexpr int32_t MAX_LONGEST = 16, MAX_SHORTER = 16;   // places to quote

// Compares the tokens up to a place with those up to `last`, read backwards, `n` at most: < 0, 0, > 0.
static int32_t compare(const std::vector<int32_t> & tokens, int32_t place, const int32_t * last, int32_t n) {
    for (int32_t i = 0; i < n; ++i) {
        const int32_t token = place >= i ? tokens[place - i] : corpus::NO_TOKEN;
        if (token != last[-i]) {
            return token < last[-i] ? -1 : 1;
        }
    }
    return 0;
}

// Sorted by the last three tokens first, whose keys stand in a row in memory, then by the ones before.
corpus::corpus(std::vector<int32_t> tokens) : tokens_(std::move(tokens)) {
    struct keyed {
        uint64_t key;
        int32_t  place;
    };
    static constexpr int32_t N_KEY = 3, KEY_BITS = 21;
    std::vector<keyed>       all(tokens_.size());
    uint64_t                 key = 0;
    for (int32_t i = 0; i < size(); ++i) {   // the place's own token weighs most
        key    = key >> KEY_BITS | (uint64_t) (tokens_[i] + 1) << (N_KEY - 1) * KEY_BITS;
        all[i] = { key, i };
    }
    const auto before = [&](const keyed & a, const keyed & b) {
        if (a.key != b.key) {
            return a.key < b.key;
        }
        for (int32_t i = N_KEY; i < MAX_MATCH; ++i) {
            const int32_t x = a.place >= i ? tokens_[a.place - i] : NO_TOKEN;
            const int32_t y = b.place >= i ? tokens_[b.place - i] : NO_TOKEN;
            if (x != y) {
                return x < y;
            }
        }
        return a.place < b.place;
    };
    std::sort(all.begin(), all.end(), before);
    places_.reserve(all.size());
    for (const keyed & k : all) {
        places_.push_back(k.place);
    }
}

corpus::range corpus::agreeing(const int32_t * last, int32_t n) const {
    const auto below = [&](int32_t place, const int32_t * l) { return compare(tokens_, place, l, n) < 0; };
    const auto above = [&](const int32_t * l, int32_t place) { return compare(tokens_, place, l, n) > 0; };
    const auto first = std::lower_bound(places_.begin(), places_.end(), last, below);
    const auto end   = std::upper_bound(first, places_.end(), last, above);
    return { (size_t) (first - places_.begin()), (size_t) (end - places_.begin()) };
}

void corpus::find(const std::vector<int32_t> & text, int32_t next, int32_t length, continuations & found) const {
    const int32_t n_last = (int32_t) std::min<size_t>(text.size() + 1, MAX_MATCH);
    if (n_last < MIN_MATCH || length < 1 || places_.empty()) {
        return;
    }
    int32_t newest[MAX_MATCH];
    std::copy(text.end() - (n_last - 1), text.end(), newest);
    newest[n_last - 1]   = next;
    const int32_t * last = newest + n_last - 1;
    const range     all  = agreeing(last, MIN_MATCH);
    if (all.first == all.end) {
        return;
    }
    // The places that agree with most stand beside the one where these tokens would be.
    const auto matched = [&](int32_t place) {
        int32_t m = 0;
        while (m < n_last && place >= m && tokens_[place - m] == last[-m]) {
            ++m;
        }
        return m;
    };
    const auto    below = [&](int32_t place, const int32_t * l) { return compare(tokens_, place, l, n_last) < 0; };
    const auto    at    = std::lower_bound(places_.begin() + all.first, places_.begin() + all.end, last, below);
    const size_t  i     = at - places_.begin();
    const int32_t most  = std::max(i < all.end ? matched(places_[i]) : 0, i > all.first ? matched(places_[i - 1]) : 0);
    const range   longest = most > MIN_MATCH ? agreeing(last, most) : all;

    const auto add = [&](size_t index) {
        const int32_t place = places_[index];
        found.begin(quote_source::corpus, matched(place));
        for (int32_t k = place + 1; k <= place + length && k < size() && tokens_[k] != NO_TOKEN; ++k) {
            found.push(tokens_[k]);
        }
    };
    // At most `most_of` places, spread over a range but for those of another.
    const auto add_spread = [&](const range & of, const range & without, int32_t most_of) {
        const size_t step = std::max<size_t>(1, (of.end - of.first) / most_of);
        int32_t      n    = 0;
        for (size_t k = of.first; k < of.end && n < most_of; k += step) {
            if (k < without.first || k >= without.end) {
                add(k);
                ++n;
            }
        }
    };
    add_spread(longest, {}, MAX_LONGEST);
    add_spread(all, longest, MAX_SHORTER);
}

}   // namespace dflash
