// Prompt lookup compared with brute force: places of the text itself, in texts that grow, repeat and are replaced.

#include "draft/lookup.h"

#include "check.h"

#include <algorithm>
#include <random>
#include <set>

using namespace dflash;

using tokens = std::vector<int32_t>;

struct found_place {
    int32_t matched;
    tokens  after;

    bool operator<(const found_place & o) const { return matched != o.matched ? matched < o.matched : after < o.after; }
    bool operator==(const found_place & o) const { return matched == o.matched && after == o.after; }
};

static std::vector<found_place> places(const continuations & found) {
    std::vector<found_place> all;
    for (const continuations::place & p : found.places()) {
        CHECK(p.source == quote_source::text);
        tokens after;
        for (int32_t i = 0; i < p.n_tokens; ++i) {
            after.push_back(found.token(p, i));
        }
        all.push_back({ p.matched, after });
    }
    return all;
}

static std::vector<found_place> find(text_index & index, const tokens & text, int32_t next, int32_t length) {
    continuations found;
    index.find(text, next, length, found);
    return places(found);
}

// Every place.
static std::vector<found_place> brute_force(const tokens & text, int32_t next, int32_t length) {
    tokens all = text;
    all.push_back(next);
    const int32_t            n = (int32_t) all.size();
    std::vector<found_place> found;
    for (int32_t place = n - 2; place >= 0; --place) {
        int32_t matched = 0;
        while (matched < MAX_MATCH && place >= matched && all[place - matched] == all[n - 1 - matched]) {
            ++matched;
        }
        if (matched >= text_index::MIN_MATCH) {
            tokens after;
            for (int32_t i = 0; i < length; ++i) {
                after.push_back(all[place + 1 + i % (n - 1 - place)]);
            }
            found.push_back({ matched, after });
        }
    }
    return found;
}

// Few places are compared, so of many some are missing; none is invented, and the longest match is there.
static void against_brute_force() {
    std::mt19937 rng(3);
    for (int round = 0; round < 400; ++round) {
        text_index     index;
        tokens         text;
        const uint32_t alphabet = 2 + round % 12;
        for (int i = 0; i < 300; ++i) {
            int32_t next = (int32_t) (rng() % alphabet);
            if (i > 60 && rng() % 4 > 0) {   // copy what stands further up
                next = text[text.size() - 50];
            }
            if (i % 7 == round % 7) {
                const int32_t length = 1 + round % 20;
                auto          got = find(index, text, next, length), want = brute_force(text, next, length);
                std::sort(got.begin(), got.end());
                std::sort(want.begin(), want.end());
                CHECK(std::includes(want.begin(), want.end(), got.begin(), got.end()));
                CHECK(want.size() > 16 || got == want);
                CHECK(want.empty() || got.back().matched == want.back().matched || want.back().matched < 8);
            }
            text.push_back(next);
        }
    }
}

static void edges() {
    text_index   index;
    const tokens loop = { 9, 1, 2, 3, 1, 2, 3, 1, 2 };
    const auto   all  = find(index, loop, 3, 7);
    CHECK(all.size() == 2);
    for (const found_place & p : all) {   // a repetition goes on, beyond the end of the text
        CHECK((p.after == tokens{ 1, 2, 3, 1, 2, 3, 1 }));
    }
    CHECK(find(index, { 5, 6, 7 }, 8, 4).empty());   // another text: old places are not read past its end
    index.reset();
    CHECK(find(index, { 5, 6, 7 }, 8, 4).empty());
    CHECK(find(index, { 5, 6, 7, 5 }, 6, 2).size() == 1);
    text_index fresh;
    CHECK(find(fresh, {}, 1, 4).empty() && find(fresh, { 1 }, 1, 4).empty());
    CHECK(find(fresh, { 1, 2, 3, 1, 2 }, 3, 0).empty());
}

// A long match far back is found among many short ones that are newer.
static void long_matches_far_back() {
    text_index index;
    tokens     text;
    for (int32_t i = 100; i < 120; ++i) {
        text.push_back(i);
    }
    text.push_back(77);   // what follows 100 ... 119
    for (int32_t i = 0; i < 200; ++i) {
        text.insert(text.end(), { 118, 119, i });
    }
    text.insert(text.end(), { 110, 111, 112, 113, 114, 115, 116, 117, 118 });
    const auto all = find(index, text, 119, 1);
    CHECK(all.size() > 16 && all.front().matched == 10 && all.front().after == tokens{ 77 });
}

int main() {
    against_brute_force();
    edges();
    long_matches_far_back();
    return TEST_RESULT;
}
