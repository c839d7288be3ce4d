// What a step pays for quotations: less than 50 microseconds in a conversation of 32k tokens, less than 200 with a
// corpus and earlier answers of a million tokens, medians; the test's limits are wide, since machines are noisy. Built
// with optimization and without sanitizers, like the engine.

#include "draft/corpus.h"
#include "draft/earlier_answers.h"
#include "draft/lookup.h"

#include "check.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <random>

using namespace dflash;

using tokens = std::vector<int32_t>;

static constexpr int32_t LENGTH = 63;   // the longest quotation
static constexpr double  MARGIN = 5;

// Few tokens are frequent and many are rare, as in texts, and one in two passages was there before.
static tokens text_of(int32_t n, uint32_t seed) {
    std::mt19937 rng(seed);
    const auto   random_token = [&] {
        const double u = (double) (rng() >> 8) / (1 << 24);
        return (int32_t) (50000 * u * u * u * u);
    };
    tokens text;
    while ((int32_t) text.size() < n) {
        const bool    copies = text.size() > 1000 && rng() % 2;
        const size_t  from   = copies ? rng() % (text.size() - 100) : 0;
        const int32_t length = 20 + (int32_t) (rng() % 60);
        for (int32_t i = 0; i < length && (int32_t) text.size() < n; ++i) {
            text.push_back(copies ? text[from + i] : random_token());
        }
    }
    return text;
}

static double seconds(const std::function<void()> & work) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// A conversation goes on token by token; find() looks for places to quote.
static void measure(const char * what, double limit_us, const tokens & text, int32_t n_before,
    const std::function<void(const tokens &, int32_t, continuations &)> & find) {
    tokens             before(text.begin(), text.begin() + n_before);
    continuations      found;
    const quote_priors priors;
    find(before, text[n_before], found);   // reads the text so far
    std::vector<double> us;
    size_t              n_places = 0, n_entries = 0;
    for (size_t i = n_before; i + 1 < text.size(); ++i) {
        us.push_back(1e6 * seconds([&] {
            found.clear();
            find(before, text[i], found);
            n_entries += quote(text[i], found, priors, LENGTH).entries.size();
        }));
        n_places += found.places().size();
        before.push_back(text[i]);
    }
    std::sort(us.begin(), us.end());
    const double median = us[us.size() / 2];
    std::printf("%5.1f us a step, %5.1f in one of 100: %s (%.1f places, %.1f tokens quoted)\n", median,
        us[us.size() * 99 / 100], what, (double) n_places / (double) us.size(),
        (double) n_entries / (double) us.size());
    CHECK(median < MARGIN * limit_us);
}

int main() {
    constexpr int32_t MILLION = 1 << 20, LONG = 32 << 10;
    const tokens      text = text_of(LONG + 2000, 1);
    text_index        index;
    std::printf("%5.1f ms to read 32k tokens\n", 1e3 * seconds([&] {
        continuations found;
        index.find(tokens(text.begin(), text.begin() + LONG), text[LONG], LENGTH, found);
    }));
    measure("a conversation of 32k tokens", 50, text, LONG,
        [&](const tokens & before, int32_t next, continuations & found) { index.find(before, next, LENGTH, found); });

    tokens all = text_of(MILLION, 2);
    std::copy(text.begin() + LONG, text.begin() + LONG + 1000, all.begin() + 4000);   // half of it is in the corpus
    for (int32_t i = 999; i < MILLION; i += 1000) {
        all[i] = corpus::NO_TOKEN;
    }
    all.back() = corpus::NO_TOKEN;
    corpus texts;
    std::printf("%5.2f s to index a million tokens, ", seconds([&] { texts = corpus(all); }));
    std::printf("%.1f bytes each\n", (double) texts.bytes() / texts.size());
    measure("a corpus of a million tokens", 200, text, LONG,
        [&](const tokens & before, int32_t next, continuations & found) { texts.find(before, next, LENGTH, found); });

    earlier_answers answers(MILLION);
    for (int32_t i = 0; i + 1000 <= MILLION; i += 1000) {
        answers.add(0, tokens(all.begin() + i, all.begin() + i + 999), 0);
    }
    std::printf("%.1f bytes for each of %lld tokens of earlier answers\n",
        (double) answers.bytes() / (double) answers.size(), (long long) answers.size());
    measure("a million tokens of earlier answers", 200, text, LONG,
        [&](const tokens & before, int32_t next, continuations & found) {
            answers.find(0, before, next, LENGTH, found);
        });
    return TEST_RESULT;
}
