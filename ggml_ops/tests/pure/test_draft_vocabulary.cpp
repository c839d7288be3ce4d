// Which tokens a drafter may propose: low ids first, then what the texts consist of, and what ends them always.

#include "draft/draft_vocabulary.h"

#include "check.h"

#include <algorithm>

using namespace dflash;

using tokens = std::vector<int32_t>;

static bool holds(const draft_vocabulary & vocabulary, int32_t token) {
    return std::binary_search(vocabulary.tokens().begin(), vocabulary.tokens().end(), token);
}

static void is_large_enough() {
    CHECK(draft_vocabulary::enough(151936) == 19456);
    CHECK(draft_vocabulary::enough(49152) == 8192);
    CHECK(draft_vocabulary::enough(16384) == 8192);
    CHECK(draft_vocabulary::enough(16383) == 0);   // half of it would not be enough
    CHECK(draft_vocabulary::enough(100) == 0);
}

static void begins_with_low_ids() {
    const draft_vocabulary vocabulary(100, 5, { 99, 2, 99 });
    CHECK((vocabulary.tokens() == tokens{ 0, 1, 2, 3, 99 }));
    CHECK(!vocabulary.is_outdated());
    const draft_vocabulary shorter(100, 5, { 100, 1 << 20, -1, 2 });   // than the target's
    CHECK((shorter.tokens() == tokens{ 0, 1, 2, 3, 4 }));
    const draft_vocabulary all(4, 4, { 3 });
    CHECK((all.tokens() == tokens{ 0, 1, 2, 3 }));
}

static void follows_texts() {
    draft_vocabulary vocabulary(1000, 10, { 999 });
    tokens           text;
    for (int32_t i = 0; i < 255; ++i) {
        text.push_back(500 + i % 6);
    }
    vocabulary.count(text);
    CHECK(!vocabulary.is_outdated());   // too little is known
    vocabulary.count({ 1, 2, 700 }, 2);
    CHECK(vocabulary.is_outdated());
    vocabulary.choose();
    CHECK(!vocabulary.is_outdated());
    CHECK((vocabulary.tokens() == tokens{ 0, 1, 500, 501, 502, 503, 504, 505, 700, 999 }));
    vocabulary.count(text);
    vocabulary.count(text);
    CHECK(!vocabulary.is_outdated());   // nothing is missing
}

// A text of another kind is noticed, however much of the first one there was; the frequent tokens of both remain.
static void notices_changes() {
    draft_vocabulary vocabulary(1000, 8, {});
    const tokens     one(3000, 600), other(300, 800);
    vocabulary.count(one);
    vocabulary.choose();
    for (int32_t i = 0; i < 10; ++i) {
        vocabulary.count(one);
    }
    CHECK(!vocabulary.is_outdated());
    vocabulary.count(other);
    CHECK(vocabulary.is_outdated());
    vocabulary.choose();
    CHECK(holds(vocabulary, 600) && holds(vocabulary, 800) && !holds(vocabulary, 801));
}

// More tokens than there is room for: the most frequent ones stay, and old ones fade.
static void forgets() {
    draft_vocabulary vocabulary(1000, 4, {});
    vocabulary.count({ 10, 11, 12, 13, 13 });
    for (int32_t i = 0; i < 40; ++i) {
        vocabulary.count(tokens(1 << 17, 20 + i % 3));
    }
    vocabulary.choose();
    CHECK(holds(vocabulary, 20) && holds(vocabulary, 21) && holds(vocabulary, 22));
    CHECK(holds(vocabulary, 0) && !holds(vocabulary, 13));
}

static void survives_nonsense() {
    draft_vocabulary vocabulary(10, 3, {});
    vocabulary.count({ -1, 10, INT32_MAX, INT32_MIN, 5 });
    vocabulary.count({ 5 }, 7);
    vocabulary.choose();
    CHECK((vocabulary.tokens() == tokens{ 0, 1, 5 }));
}

int main() {
    is_large_enough();
    begins_with_low_ids();
    follows_texts();
    notices_changes();
    forgets();
    survives_nonsense();
    return TEST_RESULT;
}
