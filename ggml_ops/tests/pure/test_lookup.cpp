// Prompt lookup compared with brute force; repetitions; what the odds learn.

#include "draft/lookup.h"

#include "check.h"

#include <random>

using namespace dflash;

// The longest earlier occurrence, by trying every place; of equally long ones the newest.
static quotation brute_force(const std::vector<int32_t> & text, int32_t next, int32_t length) {
    std::vector<int32_t> all = text;
    all.push_back(next);
    const int32_t n = (int32_t) all.size();
    quotation     q;
    int32_t       best = -1;
    for (int32_t place = n - 2; place >= 0; --place) {   // the occurrence ends here
        int32_t matched = 0;
        while (
            matched < text_index::MAX_MATCH && place - matched >= 0 && all[place - matched] == all[n - 1 - matched]) {
            ++matched;
        }
        if (matched >= text_index::MIN_MATCH && matched > q.matched) {
            q.matched = matched;
            best      = place;
        }
    }
    for (int32_t i = 0; best >= 0 && i < length; ++i) {
        q.tokens.push_back(best + 1 + i < n ? all[best + 1 + i] : q.tokens[q.tokens.size() - (n - 1 - best)]);
    }
    return q;
}

int main() {
    std::mt19937 rng(3);
    for (int round = 0; round < 400; ++round) {
        text_index           index;
        std::vector<int32_t> text;
        const uint32_t       alphabet = 2 + round % 5;
        for (int i = 0; i < 120; ++i) {
            const int32_t next = (int32_t) (rng() % alphabet);
            if (i % 7 == round % 7) {
                const quotation got  = index.find(text, next, 1 + round % 20),
                                want = brute_force(text, next, 1 + round % 20);
                // few places are compared, so a longer match far back may be missed, but no match is ever invented
                CHECK(got.matched <= want.matched && (got.matched > 0) == (want.matched > 0));
                CHECK(alphabet < 4 || got.tokens == want.tokens);
            }
            text.push_back(next);
        }
    }

    text_index                 index;
    const std::vector<int32_t> loop = { 9, 1, 2, 3, 1, 2, 3, 1, 2 };
    const quotation            q    = index.find(loop, 3, 7);
    CHECK((
        q.tokens == std::vector<int32_t>{ 1, 2, 3, 1, 2, 3, 1 }));   // a repetition goes on, beyond the end of the text
    CHECK(index.find({ 5, 6, 7 }, 8, 4).tokens.empty());   // another text: old places are not read past its end
    index.reset();
    CHECK(index.find({ 5, 6, 7 }, 8, 4).matched == 0);
    CHECK(text_index().find({}, 1, 4).matched == 0);
    CHECK(text_index().find({ 1, 2, 3, 1, 2 }, 3, 0).tokens.empty());

    quotation_odds odds = quotation_odds::of_lookup();
    CHECK(odds.at(3) < odds.at(24) && odds.at(24) < 1);
    odds.observe(12, 8, 0);   // the first token was wrong: says nothing about the seven after it
    CHECK(odds.at(12) > 0.7f && odds.at(12) < 0.8f);
    for (int i = 0; i < 100; ++i) {
        odds.observe(5, 8, 0);
        odds.observe(20, 8, 8);
    }
    CHECK(odds.at(5) < 0.15f && odds.at(20) > 0.95f && odds.at(3) > 0.4f);
    odds.fade(4);
    for (int i = 0; i < 20; ++i) {
        odds.observe(5, 8, 8);
    }
    CHECK(odds.at(5) > 0.8f);
    return TEST_RESULT;
}
