// Positions that left a drafter's ring: whole segments without gaps, shared by copies.

#include "draft/kv_history.h"

#include "check.h"

#include <utility>

using namespace dflash;

static constexpr int32_t STEP = kv_history::STEP;

static kv_history::segment segment(uint8_t value) { return std::make_shared<const raw_bytes>(3, value); }

static kv_history of_segments(int32_t begin, int32_t n) {
    kv_history past;
    for (int32_t i = 0; i < n; ++i) {
        past.append(begin + i * STEP, segment((uint8_t) i));
    }
    return past;
}

static void positions_have_their_segments() {
    const kv_history past = of_segments(2 * STEP, 3);
    CHECK(past.begin() == 2 * STEP && past.end() == 5 * STEP && past.bytes() == 9);
    CHECK(past.holding(2 * STEP)[0] == 0 && past.holding(3 * STEP - 1)[0] == 0);
    CHECK(past.holding(3 * STEP)[0] == 1 && past.holding(5 * STEP - 1)[0] == 2);
}

static void a_gap_forgets_what_came_before() {
    kv_history past = of_segments(0, 2);
    past.append(3 * STEP, segment(9));
    CHECK(past.begin() == 3 * STEP && past.end() == 4 * STEP && past.holding(3 * STEP)[0] == 9);
    past.clear();
    CHECK(past.empty() && past.bytes() == 0);
    past.append(0, segment(8));
    CHECK(past.begin() == 0 && past.end() == STEP);
}

static void only_whole_segments_stay() {
    for (const auto & [pos, end] : { std::pair{ 0, 1 }, { STEP, 1 }, { 2 * STEP - 1, 1 }, { 2 * STEP, 2 },
             { 3 * STEP - 1, 2 }, { 3 * STEP, 3 }, { 9 * STEP, 3 } }) {
        kv_history past = of_segments(STEP, 2);
        past.truncate(pos);
        CHECK(past.end() == end * STEP && past.empty() == (end == 1));
    }
    kv_history past = of_segments(0, 2);
    past.drop_oldest();
    CHECK(past.begin() == STEP && past.end() == 2 * STEP && past.holding(STEP)[0] == 1);
}

static void a_copy_shares_segments() {
    const kv_history past = of_segments(0, 3);
    for (const auto & [pos, n] : { std::pair{ 0, 0 }, { 1, 1 }, { STEP, 1 }, { STEP + 1, 2 }, { 9 * STEP, 3 } }) {
        const kv_history copy = past.before(pos);
        CHECK((int32_t) copy.segments().size() == n);
        CHECK(n == 0 || &copy.holding(0) == &past.holding(0));
    }
    CHECK(past.end() == 3 * STEP);
}

int main() {
    positions_have_their_segments();
    a_gap_forgets_what_came_before();
    only_whole_segments_stay();
    a_copy_shares_segments();
    return TEST_RESULT;
}
