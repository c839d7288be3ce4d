// What a sequence says about itself, and the taps that wait for its drafter.

#include "cache/sequence.h"
#include "cache/tap_rows.h"

#include "check.h"

using namespace dflash;

static void a_sequence_reads_until_its_prompt_ends() {
    const std::vector<int32_t> prompt = { 1, 2, 3 };
    sequence                   s;
    CHECK(!s.reading() && !s.follows() && !s.is_aside() && s.n_past() == 0);
    s.running = true;
    s.prompt  = &prompt;
    CHECK(s.reading());
    s.tokens = { 1, 2 };
    CHECK(s.reading());
    s.aside.resize(1);
    CHECK(!s.reading() && s.is_aside());   // it has no cells
    s.aside  = {};
    s.tokens = prompt;
    CHECK(!s.reading());
    s.leader.id = 0;
    CHECK(s.follows());
}

static void taps_go_on_where_they_end() {
    tap_rows t;
    t.clear(10);
    for (int32_t i = 0; i < 3; ++i) {
        float * row = t.append(1, 2);
        row[0] = row[1] = (float) i;
    }
    CHECK(t.rows == 3 && t.pos == 10);
    t.truncate(12, 2);
    CHECK(t.rows == 2 && t.data.size() == 4);
    t.truncate(20, 2);
    CHECK(t.rows == 2 && t.pos == 10);
    t.truncate(5, 2);
    CHECK(t.rows == 0 && t.pos == 5);
}

int main() {
    a_sequence_reads_until_its_prompt_ends();
    taps_go_on_where_they_end();
    return TEST_RESULT;
}
