// Cost curves, calibration, and the two choices: how many nodes, how long a block.

#include "budget.h"

#include "check.h"

#include <algorithm>
#include <cmath>
#include <random>

using namespace dflash;

static cost_curve stepped() {   // a measured 2-core curve: not convex
    cost_curve c;
    for (const auto & [n, ms] : std::map<int32_t, double>{ { 1, 9.4 }, { 2, 14.1 }, { 3, 18.7 }, { 4, 14.0 }, { 8, 23.6 }, { 16, 34.9 } }) {
        c.set(n, ms);
    }
    return c;
}

static void curves() {
    cost_curve c = stepped();
    CHECK(cost_curve().at(7) == 0);
    CHECK(c.at(1) == 9.4 && c.at(16) == 34.9 && c.at(0) == 9.4);
    CHECK(std::fabs(c.at(6) - 18.8) < 1e-9);
    CHECK(c.at(32) > c.at(16));
    for (int i = 0; i < 200; ++i) { c.observe(8, 30.0); }
    CHECK(std::fabs(c.at(8) - 30.0) < 0.1);
    const double before = c.at(16);
    c.observe(16, 1e6);                       // one stalled pass
    CHECK(c.at(16) < 1.2 * before);
    c.observe(16, -1);
    c.observe(16, NAN);
    CHECK(std::isfinite(c.at(16)));
}

// The best count by trying all of them.
static void nodes_against_brute_force() {
    std::mt19937 rng(3);
    std::uniform_real_distribution<float> u(0.2f, 1.0f);
    const cost_curve curve = stepped();
    for (int round = 0; round < 200; ++round) {
        std::vector<std::vector<float>> values(1 + round % 3);
        for (auto & v : values) {
            float x = 1;
            for (int i = 0; i < 1 + (int) (rng() % 15); ++i) { v.push_back(x *= u(rng)); }
        }
        const int32_t S = (int32_t) values.size();
        const double fixed = 1.0 + round % 7;
        const node_choice got = choose_nodes(values, curve, fixed, 1000);
        int32_t used = 0;
        double gain = S;
        for (int32_t s = 0; s < S; ++s) {
            CHECK(got.per_slot[s] >= 1 && got.per_slot[s] <= 1 + (int32_t) values[s].size());
            used += got.per_slot[s];
            for (int32_t i = 0; i + 1 < got.per_slot[s]; ++i) { gain += values[s][i]; }
        }
        CHECK(used == got.n_nodes);
        CHECK(std::fabs(gain - got.gain) < 1e-4);
        std::vector<float> all;
        for (auto & v : values) { all.insert(all.end(), v.begin(), v.end()); }
        std::sort(all.rbegin(), all.rend());
        double best = 0, sum = S;
        for (size_t k = 0; k <= all.size(); ++k) {
            if (k) { sum += all[k - 1]; }
            const int32_t rows = S + (int32_t) k;
            if (k > 0 && k < all.size() && rows % 4 != 0 && !curve.points().count(rows)) { continue; }
            best = std::max(best, sum / (fixed + curve.at(S + (int32_t) k)));
        }
        CHECK(std::fabs(best - got.rate) < 1e-6);
    }
    CHECK(choose_nodes({ { 1, 1, 1, 1 } }, curve, 0, 3).n_nodes <= 3);
    CHECK(choose_nodes({ { 0.9f, 0.8f, 0.7f } }, cost_curve(), 0, 16).n_nodes == 4);   // nothing measured: take what is likely
    // a count that the last pass had needs no new graph
    CHECK(choose_nodes({ std::vector<float>(15, 0.6f) }, curve, 5, 16, { 13, 100.0 }).n_nodes == 13);
    // 3 rows cost more than 4: the scan must look past the bump
    CHECK(choose_nodes({ { 0.9f, 0.8f, 0.7f } }, curve, 5, 16).n_nodes == 4);
}

static void calibrates() {
    calibration c;
    CHECK(std::fabs(c.apply(0.7f) - 0.7f) < 1e-6);        // nothing seen: the drafter's word
    for (int i = 0; i < 500; ++i) { c.observe(0.7f, i % 10 == 0); }
    CHECK(c.apply(0.7f) < 0.2f);                           // an overconfident drafter
    CHECK(std::fabs(c.apply(0.05f) - 0.05f) < 1e-6);      // other bins untouched
    for (const float p : { 0.0f, 1.0f, 1e-30f }) { CHECK(c.apply(p) >= 0 && c.apply(p) <= 1); }
}

static void lengths() {
    cost_curve verify = stepped(), draft;
    draft.set(4, 3);
    draft.set(16, 9);
    survival good, bad;
    CHECK(choose_length({}, { 4, 16 }, verify, draft, 0).length == 1);
    CHECK(choose_length({ &good }, { 4, 8, 16 }, verify, draft, 0).length > 1);   // a new slot drafts
    for (int i = 0; i < 100; ++i) {
        good.observe(15, 15);
        bad.observe(15, 0);
    }
    CHECK(good.at(15) > 0.9 && bad.at(1) < 0.05);
    CHECK(good.at(15) <= good.at(1));
    CHECK(choose_length({ &good }, { 4, 8, 16 }, verify, draft, 0).length == 16);
    CHECK(choose_length({ &bad }, { 4, 8, 16 }, verify, draft, 0).length == 4);   // the cheapest, if at all
    survival faded = good;
    faded.fade(4);
    CHECK(std::fabs(faded.at(3) - good.at(3)) < 0.1);
    for (int i = 0; i < 6; ++i) { faded.observe(15, 0); }  // a new text is soon believed
    CHECK(faded.at(1) < 0.6);
    for (int i = 0; i < 100; ++i) { bad.observe(3, 3); }   // the text changes
    CHECK(bad.at(1) > 0.8);
}

static void switches() {
    draft_switch s;
    int drafted = 0;
    for (int i = 0; i < 4000; ++i) {           // drafts that never pay: they must cost next to nothing
        if (s.draft_now()) {
            ++drafted;
            s.drafted(1.0, 20.0, 0.1);
        }
    }
    CHECK(drafted < 60 && s.resting());
    s.new_text();                               // a new answer is tried at once
    CHECK(s.draft_now());
    for (int i = 0; i < 50; ++i) {              // and kept while it pays
        CHECK(s.draft_now());
        s.drafted(8.0, 40.0, 0.1);
    }
    CHECK(!s.resting() && s.rate() > 0.19);
    int until_rest = 0;
    while (s.draft_now()) {
        s.drafted(1.0, 40.0, 0.1);
        ++until_rest;
    }
    CHECK(until_rest > 3 && until_rest < 20);   // not at the first bad block, but soon
}

int main() {
    switches();
    curves();
    nodes_against_brute_force();
    calibrates();
    lengths();
    return TEST_RESULT;
}
