// Where an answer is in its prediction: from the first token on, across replaced, inserted and omitted tokens, and when
// it leaves the text and returns. The place depends only on the answer.

#include "draft/prediction.h"

#include "check.h"

#include <algorithm>
#include <numeric>
#include <random>

using namespace dflash;

using tokens = std::vector<int32_t>;

static tokens counted(int32_t from, int32_t n) {
    tokens t(n);
    std::iota(t.begin(), t.end(), from);
    return t;
}

static prediction after(const tokens & predicted, const tokens & answer) {
    prediction p(predicted);
    for (const int32_t token : answer) {
        p.advance(token);
    }
    return p;
}

// What comes next, and how many tokens matched before it, -1: nothing comes.
static tokens quoted(const prediction & p, int32_t length, int32_t * matched = nullptr) {
    continuations found;
    p.find(length, found);
    tokens all;
    if (matched) {
        *matched = -1;
    }
    for (const continuations::place & place : found.places()) {
        CHECK(place.source == quote_source::prediction && place.n_tokens > 0 && all.empty());
        if (matched) {
            *matched = place.matched;
        }
        for (int32_t i = 0; i < place.n_tokens; ++i) {
            all.push_back(found.token(place, i));
        }
    }
    return all;
}

static tokens next(const tokens & predicted, const tokens & answer, int32_t length = 3) {
    return quoted(after(predicted, answer), length);
}

static int32_t matched(const tokens & predicted, const tokens & answer) {
    int32_t n = 0;
    quoted(after(predicted, answer), 3, &n);
    return n;
}

static void places() {
    const tokens text = counted(100, 200);
    CHECK((next(text, {}) == tokens{ 100, 101, 102 }));   // an answer is expected to begin with the prediction
    CHECK((next(text, { 100 }) == tokens{ 101, 102, 103 }));
    CHECK((next(text, counted(100, 198), 9) == tokens{ 298, 299 }));   // to its end
    CHECK(next(text, counted(100, 200)).empty());
    CHECK(next(text, counted(100, 205)).empty());

    tokens answer = counted(100, 20);
    answer.push_back(7);   // replaced: what follows is a guess
    CHECK((next(text, answer) == tokens{ 121, 122, 123 }) && matched(text, answer) == 0);
    answer.push_back(121);   // right
    CHECK((next(text, answer) == tokens{ 122, 123, 124 }) && matched(text, answer) == 1);

    answer = counted(100, 20);
    answer.insert(answer.end(), { 7, 8, 9, 10, 11, 120 });   // inserted, and back
    CHECK((next(text, answer) == tokens{ 121, 122, 123 }));
    answer = counted(100, 20);
    answer.push_back(150);   // omitted, but not far
    CHECK((next(text, answer) == tokens{ 151, 152, 153 }));
    answer.back() = 250;   // far: one token is not enough, three are
    CHECK((next(text, answer) == tokens{ 121, 122, 123 }));
    answer.insert(answer.end(), { 251, 252 });
    CHECK((next(text, answer) == tokens{ 253, 254, 255 }) && after(text, answer).n_met() == 23);
    answer.insert(answer.end(), { 110, 111, 112 });   // back
    CHECK((next(text, answer) == tokens{ 113, 114, 115 }));
    answer.insert(answer.end(), 20, 7);   // lost for a long time
    CHECK(next(text, answer).empty());
    answer.insert(answer.end(), { 200, 201, 202 });
    CHECK((next(text, answer) == tokens{ 203, 204, 205 }));
}

static void counts() {
    const tokens text = counted(100, 50);
    CHECK(after(text, text).n_met() == 50);
    CHECK(after(text, {}).n_met() == 0 && after(text, {}).size() == 50);
    CHECK(after(text, counted(200, 50)).n_met() == 0);
    tokens answer = text;
    answer[20]    = 7;
    CHECK(after(text, answer).n_met() == 49);
    answer.insert(answer.end(), text.begin(), text.end());   // a second time counts no token twice
    CHECK(after(text, answer).n_met() == 50);
    answer = counted(104, 4);
    answer.insert(answer.end(), { 100, 101, 102, 103 });   // back to its begin: the tokens that led there count, too
    CHECK(after(counted(100, 8), answer).n_met() == 8);
    answer = counted(200, 10);
    answer.insert(answer.end(), { 110, 200, 120, 201 });   // single tokens that match by chance do not count
    CHECK(after(text, answer).n_met() == 0);
}

static void empty() {
    prediction p;
    p.advance(1);
    CHECK(quoted(p, 8).empty() && p.size() == 0 && p.n_met() == 0);
    CHECK(quoted(after({ 1, 2 }, { 1 }), 0).empty());
}

// Random edits of a random text with few different tokens: quotations are part of the prediction, and they are right
// for most of an answer that is mostly the prediction.
static void edits() {
    std::mt19937 rng(5);
    int64_t      right = 0, all = 0;
    for (int round = 0; round < 200; ++round) {
        tokens text(300), answer;
        for (int32_t & token : text) {
            token = (int32_t) (rng() % 60);
        }
        for (size_t i = 0; i < text.size(); ++i) {
            const uint32_t dice = rng() % 100;
            if (dice < 1) {   // inserted
                for (int k = 0; k < 5; ++k) {
                    answer.push_back(100 + (int32_t) (rng() % 10));
                }
            } else if (dice < 2) {   // replaced
                answer.push_back(100);
                continue;
            } else if (dice < 3) {   // omitted
                i += 4;
                continue;
            }
            answer.push_back(text[i]);
        }
        prediction p(text);
        for (const int32_t token : answer) {
            const tokens said = quoted(p, 4);
            CHECK(said.empty() || std::search(text.begin(), text.end(), said.begin(), said.end()) != text.end());
            right += !said.empty() && said[0] == token;
            ++all;
            p.advance(token);
        }
        CHECK(p.n_met() <= 300);
    }
    CHECK(right > 0.88 * all);   // each of ten changes costs its own tokens and one or two more
    CHECK(right < all);
}

int main() {
    places();
    counts();
    empty();
    edits();
    return TEST_RESULT;
}
