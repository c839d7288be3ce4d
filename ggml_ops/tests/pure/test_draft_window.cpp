// The learned window against drafters that were trained with texts of a certain length.

#include "draft/draft_window.h"

#include "check.h"

#include <random>

using namespace dflash;

namespace {

// Tokens that a drafter gets right: `good` on average, or `bad` where it sees more positions than it knows.
struct drafter_of {
    int32_t      known;
    double       good, bad;
    std::mt19937 random{ 7 };

    int32_t accepted(int32_t window, int32_t n_held) {
        const double mean = std::min(window, n_held) <= known ? good : bad;
        return std::min(15, std::poisson_distribution<int32_t>(mean)(random));
    }
};

struct outcome {
    double  mean;    // accepted of a block
    int32_t usual;   // window in the end
};

// A text that grows from n_held on, a block at a time.
outcome write(draft_window & w, drafter_of & d, int32_t n_held, int32_t n_blocks) {
    double sum = 0;
    for (int32_t i = 0; i < n_blocks; ++i) {
        const int32_t n = d.accepted(w.choose(n_held), n_held);
        w.observe(n);
        n_held += n + 1;
        sum += n;
    }
    return { sum / n_blocks, w.usual() };
}

void a_short_text_is_seen_whole() {
    draft_window w;
    for (int32_t i = 0; i < 100; ++i) {
        CHECK(w.choose(300) == draft_window::ALL);
        w.observe(i % 7);
    }
}

void what_was_trained_with_short_texts_looks_back_less() {
    draft_window  w;
    drafter_of    d{ 512, 7, 0.7 };
    const outcome o = write(w, d, 100, 400);
    CHECK(o.usual == 256 && o.mean > 6.3);
    w.fade();   // the next answer knows it
    CHECK(write(w, d, 2000, 100).mean > 6.3);
}

void what_knows_long_texts_sees_all() {
    draft_window  w;
    drafter_of    d{ 1 << 20, 7, 7 };
    const outcome o = write(w, d, 100, 400);
    CHECK(o.mean > 6.5);
    // What is far away helps: less is seen seldom.
    std::mt19937 random{ 5 };
    draft_window v;
    double       sum = 0;
    for (int32_t i = 0; i < 400; ++i) {
        const int32_t window = v.choose(3000);
        const int32_t n      = std::poisson_distribution<int32_t>(window == draft_window::ALL ? 7 : 3)(random);
        v.observe(n);
        sum += n;
    }
    CHECK(v.usual() == draft_window::ALL && sum / 400 > 6.6);
}

// It was found good to look back less; then texts come that reward looking back.
void it_can_be_unlearned() {
    draft_window w;
    drafter_of   d{ 512, 7, 0.7 };
    write(w, d, 1000, 100);
    CHECK(w.usual() == 256);
    std::mt19937 random{ 3 };
    for (int32_t i = 0; i < 400; ++i) {
        const int32_t window = w.choose(3000);
        w.observe(std::poisson_distribution<int32_t>(window == draft_window::ALL ? 8 : 2)(random));
    }
    CHECK(w.usual() == draft_window::ALL);
}

}   // namespace

int main() {
    a_short_text_is_seen_whole();
    what_was_trained_with_short_texts_looks_back_less();
    what_knows_long_texts_sees_all();
    it_can_be_unlearned();
    return TEST_RESULT;
}
