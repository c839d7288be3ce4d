// The prefix tree of several continuations, and how far quotations are trusted.

#include "draft/quotation.h"

#include "check.h"
#include "quotations.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>
#include <set>

using namespace dflash;

using tokens = std::vector<int32_t>;

static tokens after(const quotation & q, int32_t at) {
    tokens all;
    for (int32_t i = 0; i < q.entries[at].n_after; ++i) {
        all.push_back(q.entries[q.entries[at].first + i].token);
    }
    return all;
}

static const quotation::entry & entry(const quotation & q, const tokens & path) {
    int32_t at = 0;
    for (const int32_t token : path) {
        at = q.after(at, token);
        CHECK(at > 0);
        if (at < 0) {
            std::exit(1);
        }
    }
    return q.entries[at];
}

// Continuations share what they have in common, and part where they differ.
static void branches() {
    const quote_priors priors;
    const quotation    q =
        quote(9, found_at({ { 5, { 1, 2, 3, 4 } }, { 5, { 1, 2, 7, 8 } }, { 3, { 6, 6 } } }), priors, 3);
    CHECK(q.entries[0].token == 9 && q.entries[0].value == 1);
    CHECK((after(q, 0) == tokens{ 1, 6 }));   // longer matches first
    CHECK(entry(q, { 1 }).kind.rank == quote_rank::leading && entry(q, { 6 }).kind.rank == quote_rank::behind);
    CHECK(entry(q, { 1, 2 }).kind.rank == quote_rank::again && entry(q, { 1, 2 }).kind.matched == 6);
    CHECK(entry(q, { 1, 2, 3 }).kind.rank == quote_rank::tied && entry(q, { 1, 2, 7 }).kind.matched == 7);
    CHECK(entry(q, { 6, 6 }).kind.rank == quote_rank::alone && entry(q, { 6, 6 }).kind.matched == 4);
    CHECK(entry(q, { 1, 2, 3 }).n_after == 0);   // at most three deep
    for (size_t i = 1; i < q.entries.size(); ++i) {
        CHECK(q.entries[i].kind.source == quote_source::text);
    }
    const float first = priors.at({ quote_source::text, quote_rank::leading, 5 });
    CHECK(
        entry(q, { 1 }).prob == first && std::fabs(entry(q, { 1, 2 }).value - first * entry(q, { 1, 2 }).prob) < 1e-6);
    CHECK(quote(9, {}, priors, 8).empty() && quote(9, found_at({ { 5, { 1 } } }), priors, 0).empty());
    CHECK(quote(9, found_at({ { 5, {} } }), priors, 8).empty());
}

static void several_sources() {
    const quote_priors priors;
    continuations      found = found_at({ { 4, { 1, 2 } } });
    found.begin(quote_source::prediction, 12);
    found.push(1);
    found.push(3);
    found.begin(quote_source::corpus, 5);
    found.push(5);
    const quotation q = quote(9, found, priors, 8);
    CHECK(entry(q, { 1 }).kind.source == quote_source::prediction);   // the likelier of the two that say so
    CHECK(entry(q, { 1, 2 }).kind.source == quote_source::text);
    CHECK(entry(q, { 1, 3 }).kind.source == quote_source::prediction);
    CHECK(entry(q, { 5 }).kind.rank == quote_rank::alone);   // in its source
    float sum = 0;   // each source has no other continuation, but together they are no likelier than certain
    for (const int32_t token : after(q, 0)) {
        sum += entry(q, { token }).prob;
    }
    CHECK(sum <= 1.0001f && (after(q, 0) == tokens{ 1, 5 }));
}

// Random continuations: no token twice below an entry, likelier ones first, chances that add up to one at most.
static void random_trees() {
    std::mt19937 rng(7);
    for (int round = 0; round < 300; ++round) {
        continuations found;
        for (int place = 0; place < 1 + round % 40; ++place) {
            found.begin((quote_source) (rng() % N_QUOTE_SOURCES), (int32_t) (rng() % 30));
            for (uint32_t i = rng() % 20; i > 0; --i) {
                found.push((int32_t) (rng() % 3));
            }
        }
        const quotation q = quote(1, found, {}, 16);
        size_t          n = 1;
        for (const quotation::entry & e : q.entries) {
            std::set<int32_t> seen;
            float             sum = 0, last = 1;
            for (int32_t i = 0; i < e.n_after; ++i) {
                const quotation::entry & next = q.entries[e.first + i];
                CHECK(seen.insert(next.token).second && next.depth == e.depth + 1 && next.depth <= 16);
                CHECK(next.prob <= last + 1e-6f && std::fabs(next.value - e.value * next.prob) < 1e-6f);
                last = next.prob;
                sum += next.prob;
            }
            CHECK(sum <= 1.0001f && e.n_after <= quotation::MAX_AFTER);
            n += (size_t) e.n_after;
        }
        CHECK(n == q.entries.size());
        const std::vector<float> all = q.values(false), path = q.values(true);
        CHECK(all.size() == n - 1 && path.size() <= all.size() && std::is_sorted(all.rbegin(), all.rend()));
        CHECK(std::is_sorted(path.rbegin(), path.rend()) && (path.empty() || path[0] == q.entries[1].value));
    }
}

static float prior_of(const quote_priors & priors, int32_t matched, quote_rank rank = quote_rank::alone,
    quote_source source = quote_source::text) {
    return priors.at({ source, rank, matched });
}

static void priors() {
    const quote_priors priors;
    for (const quote_source source : { quote_source::text, quote_source::corpus, quote_source::answers }) {
        for (const quote_rank rank : { quote_rank::alone, quote_rank::leading }) {
            CHECK(prior_of(priors, 4, rank, source) < prior_of(priors, 24, rank, source));
        }
        for (const int32_t matched : { 7, 12, 24 }) {   // competition makes a quotation doubtful
            CHECK(prior_of(priors, matched, quote_rank::leading, source) <
                  prior_of(priors, matched, quote_rank::alone, source));
            CHECK(prior_of(priors, matched, quote_rank::tied, source) <
                  prior_of(priors, matched, quote_rank::leading, source));
            CHECK(prior_of(priors, matched, quote_rank::behind, source) <
                  prior_of(priors, matched, quote_rank::tied, source));
        }
    }
    CHECK(prior_of(priors, 4, quote_rank::alone, quote_source::corpus) <
          prior_of(priors, 4));   // less is known of a corpus
    CHECK(prior_of(priors, 1000) < 1 && prior_of(priors, 17) == prior_of(priors, 24) &&
          prior_of(priors, 16) < prior_of(priors, 17));
}

// What came true counts, whether it was drafted or not; what comes after a wrong token says nothing.
static void learning() {
    quote_priors    priors;
    const float     before = prior_of(priors, 5), deeper = prior_of(priors, 7);
    const quotation q = quote(9, found_at({ { 5, { 1, 2, 3, 4 } } }), priors, 8);
    for (int i = 0; i < 60; ++i) {
        observe(priors, q, { 8, 2, 3 });
    }
    CHECK(prior_of(priors, 5) < 0.4f * before && prior_of(priors, 7) == deeper);
    CHECK(prior_of(priors, 5, quote_rank::again) > 0.9f &&
          prior_of(priors, 5, quote_rank::alone, quote_source::answers) ==
              prior_of({}, 5, quote_rank::alone, quote_source::answers));
    priors.fade(4);
    for (int i = 0; i < 60; ++i) {
        observe(priors, q, { 1, 2, 3, 4, 5, 6 });
    }
    CHECK(prior_of(priors, 5) > 0.9f && prior_of(priors, 7) > deeper);
    quote_priors untouched;
    observe(untouched, {}, { 1, 2 });
    observe(untouched, q, {});
    CHECK(prior_of(untouched, 5) == before);
}

int main() {
    branches();
    several_sources();
    random_trees();
    priors();
    learning();
    return TEST_RESULT;
}
