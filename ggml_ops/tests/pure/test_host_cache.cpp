// Conversations on the host: which one is used for a prompt, and which ones are evicted.

#include "cache/host_cache.h"

#include "check.h"

#include <numeric>

using namespace dflash;

// n tokens counting up from `first`, whose state takes `bytes`.
static conversation talk(int32_t first, int32_t n, size_t bytes, int32_t reach = 0) {
    conversation c;
    c.tokens.resize(n);
    std::iota(c.tokens.begin(), c.tokens.end(), first);
    c.reach = reach;
    c.state.resize(bytes);
    return c;
}

static checkpoint place(int32_t at, size_t bytes = 0) { return { at, std::make_shared<raw_bytes>(bytes) }; }

static void what_is_kept() {
    CHECK(kept_tokens(0, {}, 7) == 7);
    CHECK(kept_tokens(10, {}, 7) == 0);
    CHECK(kept_tokens(7, {}, 7) == 7);
    CHECK(kept_tokens(10, { place(2), place(5), place(9) }, 7) == 5);
    CHECK(kept_tokens(10, { place(2), place(5), place(9) }, 10) == 10);
    CHECK(kept_tokens(10, { place(2) }, 1) == 0);
}

static void bytes_are_counted() {
    conversation c = talk(0, 10, 100);
    c.checkpoints  = { place(3, 50), place(5, 7) };
    c.drafts.resize(1);
    c.drafts[0].context.data.resize(20);
    c.drafts[0].taps.data.resize(3);
    CHECK(c.bytes() == 10 * 4 + 100 + 50 + 7 + 20 + 3 * 4);
}

static void the_best_one_is_found() {
    host_cache cache(1 << 20);
    cache.add(talk(0, 100, 10));
    cache.add(talk(500, 100, 10));
    cache.add(talk(900, 100, 10, 100));   // all or nothing
    CHECK(cache.size() == 3);
    std::vector<int32_t> prompt = talk(500, 80, 0).tokens;
    CHECK(cache.find(prompt).n_kept == 79);   // the last token is always read
    CHECK(cache.find(prompt).entry->tokens[0] == 500);
    prompt.push_back(3);
    CHECK(cache.find(prompt).n_kept == 80);
    CHECK(cache.find(talk(7, 5, 0).tokens).entry == nullptr);
    CHECK(cache.find(talk(900, 80, 0).tokens).entry == nullptr);
    CHECK(cache.find(talk(900, 101, 0).tokens).n_kept == 100);
    CHECK(cache.take(cache.find(prompt).entry).tokens[0] == 500);
    CHECK(cache.size() == 2 && cache.find(prompt).entry == nullptr);
    CHECK(cache.take(nullptr).tokens.empty() && cache.size() == 2);
    cache.add(talk(0, 30, 10));   // a newer one with less in common
    CHECK(cache.size() == 3 && cache.find(talk(0, 80, 0).tokens).n_kept == 79);
}

static void the_one_that_is_worth_most_is_found() {
    host_cache    cache(1 << 20);
    const int32_t lengths[] = { 100, 60, 80 };
    for (int32_t i = 0; i < 3; ++i) {
        conversation c = talk(1000 * i, lengths[i], 10);
        std::iota(c.tokens.begin(), c.tokens.begin() + 20, 0);   // the same beginning
        cache.add(std::move(c));
    }
    const host_cache::match found = cache.find(talk(0, 21, 0).tokens);
    CHECK(found.n_kept == 20 && found.entry->tokens.size() == 60);
    conversation  longer = talk(0, 500, 10);   // which gives a little more, and takes much longer to copy
    const int32_t last   = longer.tokens[21];
    cache.add(std::move(longer));
    std::vector<int32_t> prompt = talk(0, 21, 0).tokens;
    prompt.push_back(last);
    CHECK(cache.find(prompt).entry->tokens.size() == 60);
}

static void a_longer_one_replaces_what_it_holds() {
    host_cache cache(1 << 20);
    cache.add(talk(0, 50, 10));
    cache.add(talk(0, 100, 10));
    CHECK(cache.size() == 1 && cache.holds(talk(0, 50, 0).tokens) && cache.holds(talk(0, 100, 0).tokens));
    CHECK(!cache.holds(talk(0, 101, 0).tokens));
    cache.add(talk(0, 120, 10, 120));   // cannot be cut back to the first 100
    CHECK(cache.size() == 2 && cache.bytes() == 2 * 10 + 220 * 4);
}

static void what_never_fits_costs_nothing() {
    host_cache cache(1000);
    CHECK(cache.add(talk(0, 50, 100)) && cache.add(talk(1000, 50, 100)));
    CHECK(!cache.add(talk(0, 100, 2000)));   // it covers the first
    CHECK(cache.size() == 2 && cache.bytes() == 600 && cache.holds(talk(0, 50, 0).tokens));
}

static void the_oldest_leave() {
    host_cache cache(1000);
    for (int32_t i = 0; i < 4; ++i) {
        cache.add(talk(1000 * i, 50, 100));   // 300 bytes each
    }
    CHECK(cache.size() == 3 && cache.bytes() == 900);
    CHECK(!cache.holds(talk(0, 50, 0).tokens) && cache.holds(talk(1000, 50, 0).tokens));
    CHECK(cache.make_room(700) && cache.size() == 1);
    CHECK(!cache.make_room(1001) && cache.size() == 1);
    cache.add(talk(9000, 50, 2000));   // never fits, and evicts nobody
    CHECK(cache.size() == 1 && cache.holds(talk(3000, 50, 0).tokens));
    cache.shrink();
    CHECK(cache.size() == 0 && cache.bytes() == 0 && cache.enabled());
    host_cache none(0);
    none.add(talk(0, 5, 0));
    CHECK(!none.enabled() && none.size() == 0);
    host_cache all(host_cache::NO_LIMIT);
    CHECK(all.make_room(SIZE_MAX - 1));
}

int main() {
    what_is_kept();
    bytes_are_counted();
    the_best_one_is_found();
    the_one_that_is_worth_most_is_found();
    a_longer_one_replaces_what_it_holds();
    what_never_fits_costs_nothing();
    the_oldest_leave();
    return TEST_RESULT;
}
