// The suffix array over the user's texts compared with brute force: places that agree, and what follows up to the end
// of their text.

#include "draft/corpus.h"

#include "check.h"

#include <algorithm>
#include <random>

using namespace dflash;

using tokens = std::vector<int32_t>;

// How many of the last tokens of text + [next] end at this place.
static int32_t matched_at(const tokens & all, int32_t place, tokens text, int32_t next) {
    text.push_back(next);
    int32_t m = 0;
    while (m < MAX_MATCH && m <= place && m < (int32_t) text.size() && all[place - m] == text[text.size() - 1 - m]) {
        ++m;
    }
    return m;
}

static void against_brute_force() {
    std::mt19937 rng(4);
    int32_t      n_found = 0;
    for (int round = 0; round < 60; ++round) {
        tokens all;
        for (int i = 0; i < 400; ++i) {   // passages that come again
            all.push_back(i % 60 == 59            ? corpus::NO_TOKEN
                          : i > 100 && rng() % 12 ? std::max(0, all[all.size() - 97])
                                                  : (int32_t) (rng() % 6));
        }
        all.push_back(corpus::NO_TOKEN);
        const corpus texts(all);
        CHECK(texts.size() == 401 && texts.bytes() >= 8 * 401);
        for (int query = 0; query < 50; ++query) {
            const int32_t from = (int32_t) (rng() % 370), n = 1 + (int32_t) (rng() % 30);
            tokens        text(all.begin() + from, all.begin() + from + n);
            std::replace(text.begin(), text.end(), corpus::NO_TOKEN, 3);
            const int32_t next = (int32_t) (rng() % 6), length = 1 + (int32_t) (rng() % 9);
            int32_t       longest = 0, n_agreeing = 0;
            for (int32_t place = 0; place < (int32_t) all.size(); ++place) {
                const int32_t m = matched_at(all, place, text, next);
                longest         = std::max(longest, m);
                n_agreeing += m >= corpus::MIN_MATCH;
            }
            continuations found;
            texts.find(text, next, length, found);
            CHECK((n_agreeing > 0) == !found.places().empty() && (int32_t) found.places().size() <= n_agreeing);
            CHECK(n_agreeing > 16 || (int32_t) found.places().size() == n_agreeing);
            int32_t most = 0;
            for (const continuations::place & p : found.places()) {   // stands somewhere, after as many tokens
                most          = std::max(most, p.matched);
                bool is_there = false;
                for (int32_t place = 0; place < (int32_t) all.size() && !is_there; ++place) {
                    is_there = matched_at(all, place, text, next) == p.matched;
                    for (int32_t i = 0; i < p.n_tokens && is_there; ++i) {
                        is_there = all[place + 1 + i] == found.token(p, i);
                    }
                    is_there = is_there && (p.n_tokens == length || all[place + 1 + p.n_tokens] == corpus::NO_TOKEN);
                }
                CHECK(is_there && p.source == quote_source::corpus);
            }
            CHECK(found.places().empty() || most == longest);
            n_found += !found.places().empty();
        }
    }
    CHECK(n_found > 500);
}

static void edges() {
    continuations found;
    corpus().find({ 1, 2, 3 }, 4, 8, found);
    corpus({ -1 }).find({ 1, 2, 3 }, 4, 8, found);
    const corpus texts({ 1, 2, 3, 4, 5, -1, 9, 1, 2, 3, 4, -1 });
    texts.find({}, 4, 8, found);
    texts.find({ 2, 3 }, 4, 8, found);   // fewer than the least match
    texts.find({ 1, 2, 3 }, 4, 0, found);
    texts.find({ 1, 2, 3 }, 5, 8, found);
    CHECK(found.places().empty());
    texts.find({ 1, 2, 3 }, 4, 8, found);   // one of the two texts ends there
    CHECK(found.places().size() == 2 && found.places()[0].n_tokens + found.places()[1].n_tokens == 1);
}

// One place agrees with more tokens than a hundred others.
static void the_longest_match() {
    tokens all = { 8, 1, 2, 3, 4, 5, 77, corpus::NO_TOKEN };
    for (int32_t i = 0; i < 100; ++i) {
        all.insert(all.end(), { 0, 2, 3, 4, 5, i, corpus::NO_TOKEN });
    }
    continuations found;
    corpus(all).find({ 8, 1, 2, 3, 4 }, 5, 1, found);
    const continuations::place & first = found.places().front();
    CHECK(first.matched == 6 && found.token(first, 0) == 77 && found.places().size() == 1 + 16);
}

int main() {
    the_longest_match();
    against_brute_force();
    edges();
    return TEST_RESULT;
}
