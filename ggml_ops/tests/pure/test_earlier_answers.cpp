// Earlier answers: each owner finds its own, the oldest go first, and nothing that is gone is read.

#include "draft/earlier_answers.h"

#include "check.h"
#include "refused_size.h"

#include <algorithm>
#include <deque>
#include <random>

using namespace dflash;

using tokens = std::vector<int32_t>;

static std::vector<tokens> found_by(
    const earlier_answers & answers, int32_t owner, const tokens & text, int32_t next, int32_t length = 8) {
    continuations found;
    answers.find(owner, text, next, length, found);
    std::vector<tokens> all;
    for (const continuations::place & p : found.places()) {
        CHECK(p.source == quote_source::answers && p.matched >= earlier_answers::MIN_MATCH);
        all.emplace_back();
        for (int32_t i = 0; i < p.n_tokens; ++i) {
            all.back().push_back(found.token(p, i));
        }
    }
    return all;
}

// The owner of an answer that cannot be kept begins anew, and no other one.
static void without_memory_an_owner_is_forgotten() {
    earlier_answers answers(1000);
    answers.add(1, { 1, 2, 3, 4 }, 0);
    refused_size = 1024 * sizeof(int32_t);   // the heads of 1000 places
    bool refused = false;
    try {
        answers.add(2, { 1, 2, 3, 5 }, 0);
    } catch (const std::bad_alloc &) {
        refused = true;
    }
    refused_size = 0;
    CHECK(refused);
    answers.forget(2);
    CHECK(found_by(answers, 2, { 1, 2 }, 3).empty());
    answers.add(2, { 1, 2, 3, 6 }, 0);
    CHECK((found_by(answers, 2, { 1, 2 }, 3) == std::vector<tokens>{ { 6 } }));
    CHECK((found_by(answers, 1, { 1, 2 }, 3) == std::vector<tokens>{ { 4 } }));
}

static void owners() {
    earlier_answers answers(1000);
    answers.add(1, { 50, 51, 52, 1, 2, 3, 4, 5 }, 3);
    CHECK((found_by(answers, 1, { 9, 1, 2 }, 3) == std::vector<tokens>{ { 4, 5 } }));
    CHECK(
        (found_by(answers, 1, { 50, 51 }, 52) == std::vector<tokens>{ { 1, 2, 3, 4, 5 } }));   // from its beginning on
    CHECK(found_by(answers, 0, { 9, 1, 2 }, 3).empty() && found_by(answers, 2, { 9, 1, 2 }, 3).empty());
    answers.add(2, { 1, 2, 3, 7 }, 0);
    CHECK((found_by(answers, 1, { 1, 2 }, 3) == std::vector<tokens>{ { 4, 5 } }));
    CHECK((found_by(answers, 2, { 1, 2 }, 3) == std::vector<tokens>{ { 7 } }));
    CHECK((found_by(answers, 1, { 3, 4 }, 5) == std::vector<tokens>{ {} }));   // the end of that answer
    CHECK(answers.size() == 9 + 5 && answers.bytes() > 0);
    answers.add(1, { 60, 61 }, 2);   // nothing was answered
    CHECK(answers.size() == 9 + 5);

    earlier_answers none(0);
    none.add(1, { 1, 2, 3, 4 }, 0);
    CHECK(none.size() == 0 && found_by(none, 1, { 1, 2 }, 3).empty());
}

// Rows of an image end what is quoted: they have negative numbers.
static void media() {
    earlier_answers answers(1000);
    answers.add(0, { 1, 2, 3, 4, -7, -7, 5, 6 }, 6);
    CHECK((found_by(answers, 0, { 1, 2 }, 3) == std::vector<tokens>{ { 4 } }));
    CHECK((found_by(answers, 0, { 2, 3 }, 4) == std::vector<tokens>{ {} }));
}

// Only the last tokens of a prompt are kept.
static void prompts() {
    earlier_answers answers(1000);
    tokens          text;
    for (int32_t i = 0; i < 100; ++i) {
        text.push_back(i);
    }
    answers.add(0, text, 90);
    CHECK(answers.size() == MAX_MATCH + 10 + 1);
    CHECK(found_by(answers, 0, { 60, 61 }, 62).empty() && found_by(answers, 0, { 70, 71 }, 72).size() == 1);
}

// However many come, the memory keeps its size, the newest are found, and what is found is still there.
static void the_oldest_go_first() {
    std::mt19937        rng(8);
    constexpr int32_t   N_KEPT = 200;
    earlier_answers     answers(N_KEPT);
    std::deque<int32_t> kept;
    size_t              bytes = 0;
    for (int round = 0; round < 500; ++round) {
        tokens answer;
        for (uint32_t i = 1 + rng() % (round % 50 == 7 ? 500 : 30); i > 0; --i) {   // some are longer than the memory
            answer.push_back((int32_t) (rng() % 5));
        }
        answers.add(3, answer, 0);
        kept.insert(kept.end(), answer.begin(), answer.end());
        kept.push_back(-1);
        while (kept.size() > N_KEPT) {
            kept.pop_front();
        }
        CHECK(answers.size() == (int64_t) kept.size());
        CHECK(round < 300 || bytes == answers.bytes());
        bytes              = answers.bytes();
        const tokens  text = { (int32_t) (rng() % 5), (int32_t) (rng() % 5) };
        const int32_t next = (int32_t) (rng() % 5);
        size_t        n    = 0;
        for (size_t i = 2; i < kept.size(); ++i) {
            n += kept[i - 2] == text[0] && kept[i - 1] == text[1] && kept[i] == next;
        }
        const std::vector<tokens> found = found_by(answers, 3, text, next, 4);
        CHECK(found.size() == std::min<size_t>(n, found.size()) && (n > 0) == !found.empty());
        CHECK(n > 20 || found.size() == n);
        for (tokens after : found) {
            after.insert(after.begin(), { text[0], text[1], next });
            CHECK(std::search(kept.begin(), kept.end(), after.begin(), after.end()) != kept.end());
        }
    }
}

int main() {
    owners();
    without_memory_an_owner_is_forgotten();
    media();
    prompts();
    the_oldest_go_first();
    return TEST_RESULT;
}
