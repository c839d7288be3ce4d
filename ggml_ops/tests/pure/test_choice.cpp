// Cost curves, and the choice of nodes, of a block's length and of whether to draft.

#include "budget/choice.h"

#include "check.h"

#include <algorithm>
#include <cmath>
#include <random>

using namespace dflash;

static cost_curve stepped() {   // a measured 2-core curve: not convex
    cost_curve c;
    for (const auto & [n, ms] :
        std::map<int32_t, double>{ { 1, 9.4 }, { 2, 14.1 }, { 3, 18.7 }, { 4, 14.0 }, { 8, 23.6 }, { 16, 34.9 } }) {
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
    for (int i = 0; i < 400; ++i) {
        c.observe(8, 0, 30.0);
    }
    CHECK(std::fabs(c.at(8) - 30.0) < 0.1);
    const double before = c.at(16);
    c.observe(16, 0, 1e6);   // one stalled pass
    CHECK(c.at(16) < 1.2 * before);
    c.observe(16, 0, -1);
    c.observe(16, 0, NAN);
    CHECK(std::isfinite(c.at(16)));
}

// Attention has a price per cell, learned from passes of any width and applied to all.
static void cells() {
    cost_curve c = stepped();
    CHECK(c.at(16, 1e5) == c.at(16));
    for (int i = 0; i < 120; ++i) {
        const double  past = 100 + i;
        const int32_t rows = i % 3 == 0 ? 8 : 16;
        c.observe(rows, rows * past, (rows == 8 ? 23.6 : 34.9) + 0.005 * rows * past);
    }
    CHECK(std::fabs(c.per_cell() - 0.005) < 0.0005);
    CHECK(std::fabs(c.at(16) - 34.9) < 1.5 && std::fabs(c.at(8) - 23.6) < 1.0);
    CHECK(std::fabs(c.at(4, 4 * 200.0) - (14.0 + 4.0)) < 0.5);   // a width that was never measured
    // a long context makes wide passes expensive
    const std::vector<float> values(15, 0.8f);
    CHECK(best_nodes({ values }, c, 100, 5, 16).n_nodes >= best_nodes({ values }, c, 3000, 5, 16).n_nodes);
    for (int i = 0; i < 300; ++i) {
        c.observe(16, 16 * 200.0, 34.9);
    }   // another device has another price
    CHECK(c.per_cell() < 0.001 || c.at(16) < 34.9);
    CHECK(std::fabs(c.at(16, 16 * 200.0) - 34.9) < 1);
}

// On a busy machine, where passes of all widths are disturbed at random, no width becomes free; and soon afterwards all
// have their old costs again.
static void a_busy_machine() {
    std::mt19937                    rng(0);
    const std::map<int32_t, double> sound = { { 1, 2 }, { 2, 2.2 }, { 4, 3 }, { 8, 5 }, { 12, 8 }, { 16, 9 } };
    cost_curve                      c;
    for (const auto & [rows, ms] : sound) {
        c.set(rows, ms);
    }
    const auto run = [&](int n, double disturbed) {
        int32_t past = 20;
        for (int i = 0; i < n; ++i) {
            past             = rng() % 80 == 0 ? 20 + (int32_t) (rng() % 60) : past + 3;
            const auto   one = std::next(sound.begin(), rng() % sound.size());
            const double ms  = one->second + 0.0003 * one->first * past;
            const bool   bad = rng() % 100 < 100 * disturbed;
            c.observe(one->first, one->first * past, bad ? ms * (1 + rng() % 25) : ms);
            for (const auto & [rows, least] : sound) {
                CHECK(c.at(rows) > 0.05 * least);
            }
        }
    };
    run(2000, 0.6);
    run(2000, 0);
    for (const auto & [rows, ms] : sound) {
        CHECK(std::fabs(c.at(rows) - ms) < 0.3 * ms);
    }
}

// Finds the best count by trying all.
static void nodes_against_brute_force() {
    std::mt19937                          rng(3);
    std::uniform_real_distribution<float> u(0.2f, 1.0f);
    const cost_curve                      curve = stepped();
    for (int round = 0; round < 200; ++round) {
        std::vector<std::vector<float>> values(1 + round % 3);
        for (auto & v : values) {
            float x = 1;
            for (int i = 0; i < 1 + (int) (rng() % 15); ++i) {
                v.push_back(x *= u(rng));
            }
        }
        const int32_t     S     = (int32_t) values.size();
        const double      fixed = 1.0 + round % 7;
        const node_choice got   = best_nodes(values, curve, 0, fixed, 1000);
        int32_t           used  = 0;
        double            gain  = S;
        for (int32_t s = 0; s < S; ++s) {
            CHECK(got.per_slot[s] >= 1 && got.per_slot[s] <= 1 + (int32_t) values[s].size());
            used += got.per_slot[s];
            for (int32_t i = 0; i + 1 < got.per_slot[s]; ++i) {
                gain += values[s][i];
            }
        }
        CHECK(used == got.n_nodes);
        CHECK(std::fabs(gain - got.gain) < 1e-4);
        std::vector<float> all;
        for (auto & v : values) {
            all.insert(all.end(), v.begin(), v.end());
        }
        std::sort(all.rbegin(), all.rend());
        double best = 0, sum = S;
        for (size_t k = 0; k <= all.size(); ++k) {
            if (k) {
                sum += all[k - 1];
            }
            const int32_t rows = S + (int32_t) k;
            if (k > 0 && k < all.size() && rows >= 16 && rows % 4 != 0 && !curve.has(rows)) {
                continue;
            }
            best = std::max(best, sum / (fixed + curve.at(S + (int32_t) k)));
        }
        CHECK(std::fabs(best - got.rate) < 1e-6);
    }
    CHECK(best_nodes({ { 1, 1, 1, 1 } }, curve, 0, 0, 3).n_nodes <= 3);
    CHECK(best_nodes({ { 0.9f, 0.8f, 0.7f } }, cost_curve(), 0, 0, 16).n_nodes ==
          4);   // nothing measured: take the likely ones
    // the last pass's count needs no new graph
    CHECK(best_nodes({ std::vector<float>(15, 0.6f) }, curve, 0, 5, 16, { 13, 100.0 }).n_nodes == 13);
    // 3 rows cost more than 4: the scan must look past the bump
    CHECK(best_nodes({ { 0.9f, 0.8f, 0.7f } }, curve, 0, 5, 16).n_nodes == 4);
}

// A width that was measured at a busy moment follows those that run, until it runs itself.
static void unseen_widths_follow() {
    cost_curve c;
    c.set(1, 20);
    c.set(4, 40);
    c.set(8, 80);
    for (int i = 0; i < 200; ++i) {   // the neighbour is gone
        c.observe(1, 0, 10);
        c.observe(4, 0, 20);
    }
    CHECK(std::fabs(c.at(4) - 20) < 0.1 && std::fabs(c.at(8) - 40) < 0.5);
    CHECK(std::fabs(c.at(6) - 30) < 0.5 && std::fabs(c.points().at(8) - c.at(8)) < 1e-9);
    for (int i = 0; i < 200; ++i) {   // it is slower than they made believe
        c.observe(8, 0, 60);
    }
    CHECK(std::fabs(c.at(8) - 60) < 0.5 && std::fabs(c.at(4) - 20) < 0.1);
    cost_curve busy = c;
    busy.set(16, 90);
    for (int i = 0; i < 200; ++i) {   // a neighbour comes: what was measured before it stays
        busy.observe(4, 0, 60);
        busy.observe(8, 0, 160);
    }
    CHECK(busy.at(16) <= 90 && busy.at(16) > 80);
}

// What was measured at a busy moment is not believed beyond what the widths that run prove: some narrow passes can do a
// wide one's work, and a wide pass does a narrow one's as well.
static void unseen_widths_are_bounded() {
    cost_curve c = cost_curve::of_target();
    c.set(1, 30);
    c.set(2, 900);
    CHECK(c.at(2) == 900);   // nothing has run
    c.observe(1, 0, 30);
    CHECK(c.at(2) <= 60 && c.at(8) <= 240 && c.points().at(2) == c.at(2));
    c.observe(8, 0, 17);
    CHECK(c.at(2) <= 26 && c.at(5) <= 26 && c.at(8) == 17 && c.at(1) == 30);
    c.set(16, 20);
    c.observe(2, 0, 17);   // what was not believed says nothing about other widths
    CHECK(c.at(2) < 26 && c.at(16) > 19.9);
    for (int i = 0; i < 100; ++i) {
        c.observe(2, 0, 17);
    }
    CHECK(c.at(2) < 18 && c.at(16) > 19.9);   // nor does what it really takes count as a faster machine

    cost_curve bumpy = stepped(), bounded = cost_curve::of_target();
    for (const auto & [rows, ms] : bumpy.points()) {
        bounded.set(rows, ms);
    }
    for (const int32_t rows : { 1, 4, 16, 2 }) {   // a sound measurement stays, steps and all
        bounded.observe(rows, 0, bumpy.at(rows));
        CHECK(bounded.points() == bumpy.points());
    }
    cost_curve draft;   // of MTP layers: blocks of four tokens for four slots are fewer passes than one of sixteen
    draft.set(16, 15);
    draft.observe(64, 0, 3);
    draft.set(4, 3);
    draft.observe(4, 0, 3);
    CHECK(draft.at(16) == 15);
}

// A few passes correct what was measured at another moment; one slow pass later moves little.
static void first_passes_weigh_more() {
    cost_curve c;
    c.set(4, 20);
    for (int i = 0; i < 5; ++i) {
        c.observe(4, 0, 30);
    }
    CHECK(std::fabs(c.at(4) - 25) < 1e-9);   // half way
    for (int i = 0; i < 200; ++i) {
        c.observe(4, 0, 30);
    }
    c.observe(4, 0, 50);
    CHECK(std::fabs(c.at(4) - 31) < 0.1);
}

// A width that was not measured starts from its neighbours: one stalled pass must not keep others from it.
static void a_new_width_starts_from_its_neighbours() {
    cost_curve c;
    c.set(4, 10);
    c.set(8, 14);
    c.observe(6, 0, 500);
    CHECK(c.has(6) && c.at(6) > 12 && c.at(6) <= 14.01);
    for (int i = 0; i < 100; ++i) {
        c.observe(6, 0, 13);
    }
    CHECK(std::fabs(c.at(6) - 13) < 0.1);
    c.observe(16, 0, 20);   // nothing is known beyond the widest
    CHECK(c.at(16) == 20);
}

// Padded passes: rows within the same width are free, and only full widths are chosen.
static void padded_widths() {
    CHECK(padded_width(1) == 1 && padded_width(3) == 4 && padded_width(9) == 16 && padded_width(64) == 64);
    CHECK(padded_width(65) == 128);
    cost_curve c;
    c.set_padded(true);
    c.set(1, 10);
    c.set(8, 11);
    c.set(16, 12);
    CHECK(c.at(9) == c.at(16) && c.at(8) < c.at(9));
    c.observe(13, 0, 24);
    CHECK(!c.has(13) && c.at(16) > 12);
    const std::vector<float> values(15, 0.3f);
    CHECK(best_nodes({ values }, c, 0, 5, 16).n_nodes == 16);
    CHECK(best_nodes({ values }, c, 0, 5, 13).n_nodes == 13);   // there is no room for more
    // another width needs another graph, another count within the same width does not
    CHECK(best_nodes({ values }, c, 0, 5, 16, { 7, 100.0 }).n_nodes == 8);
    CHECK(best_nodes({ values }, c, 0, 5, 16, { 11, 100.0 }).n_nodes == 16);
}

// A drafter whose every block is worth `values`, one node per depth.
static value_profile profile(const std::vector<int32_t> & lengths, int32_t length, float chance, int times = 10) {
    value_profile        p;
    std::vector<int32_t> depths;
    std::vector<float>   values;
    float                value = 1;
    for (int32_t d = 1; d < length; ++d) {
        depths.push_back(d);
        values.push_back(value *= chance);
    }
    for (int i = 0; i < times; ++i) {
        p.observe(length, lengths, depths, values);
    }
    return p;
}

static void lengths() {
    cost_curve verify = stepped(), draft;
    draft.set(4, 3);
    draft.set(16, 9);
    const std::vector<int32_t> all = { 4, 8, 16 };
    value_profile              fresh;
    CHECK(best_length({}, all, verify, 0, draft, 0, 64).length == 1);
    CHECK(best_length({ &fresh }, all, verify, 0, draft, 0, 64).length == 16);   // a new slot takes the whole block
    const value_profile good = profile(all, 16, 0.97f), bad = profile(all, 16, 0.2f);
    CHECK(good.at(4) && good.at(8) && good.at(4)->size() == 3);   // shorter blocks are known from longer ones
    CHECK(best_length({ &good }, all, verify, 0, draft, 0, 64).length == 16);
    CHECK(best_length({ &bad }, all, verify, 0, draft, 0, 64).length == 4);   // the cheapest, if any
    CHECK(best_length({ &good, &bad }, all, verify, 0, draft, 0, 64).length >= 4);
    CHECK(best_length({ &good, &fresh }, all, verify, 0, draft, 0, 64).length == 16);
    const length_choice c = best_length({ &good }, all, verify, 0, draft, 1, 64);
    CHECK(std::fabs(c.rate - c.gain / (draft.at(16) + verify.at(c.nodes) + 1)) < 1e-9);
    // the expected yield of the choice is that of the observed values
    double gain = 1, value = 1;
    for (int32_t i = 1; i < c.nodes; ++i) {
        gain += value *= 0.97;
    }
    CHECK(std::fabs(gain - c.gain) < 1e-3);
    value_profile mixed;   // a new tree counts as much as all earlier ones
    mixed.observe(4, { 4 }, { 1, 2, 3 }, { 0.8f, 0.8f, 0.8f });
    mixed.observe(4, { 4 }, { 1, 2, 3 }, { 0.4f, 0.4f, 0.2f });
    CHECK(std::fabs((*mixed.at(4))[0] - 0.6f) < 1e-6f && std::fabs((*mixed.at(4))[2] - 0.5f) < 1e-6f);
    value_profile p          = bad;   // after many short blocks the long one is tried again
    int           until_long = 0;
    for (; until_long < 100 && best_length({ &p }, all, verify, 0, draft, 0, 64).length == 4; ++until_long) {
        p.observe(4, all, { 1, 2, 3 }, { 0.2f, 0.04f, 0.008f });
    }
    CHECK(until_long > 20 && until_long < 60);
    value_profile stuck = bad;   // a short block that is good to its end asks for a longer one
    stuck.observe(4, all, { 1, 2, 3 }, { 0.95f, 0.9f, 0.85f });
    CHECK(best_length({ &stuck }, all, verify, 0, draft, 0, 64).length == 16);
    for (int i = 0; i < 30; ++i) {   // adapts quickly to another text
        p.observe(16, all, { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 }, std::vector<float>(10, 0.95f));
    }
    CHECK((*p.at(16))[5] > 0.9f && (*p.at(4)).size() == 3);
}

// Tokens that drafts lost to plain decoding, of a tenth of a token per ms, in `n` steps of which every drafted one
// costs 20 ms and yields so many tokens beside the certain one.
static double lost(draft_switch & s, int n, double yield, int * drafted = nullptr) {
    double tokens = 0;
    for (int i = 0; i < n; ++i) {
        if (s.draft_now()) {
            s.observe(1, yield, yield, 20.0, 0.1);
            tokens += 2.0 - (1.0 + yield);
            if (drafted) {
                ++*drafted;
            }
        }
    }
    return tokens;
}

static void losses_are_bounded() {
    for (const double yield : { 0.0, 0.5, 0.9, 0.98 }) {   // even those of a hundredth of each step
        draft_switch s;
        int          drafted = 0;
        const double first   = lost(s, 1000, yield, &drafted);
        CHECK(first > 2.5 && first < 12 && s.resting());
        CHECK(lost(s, 4000, yield, &drafted) < 9);   // trials, ever fewer
        CHECK(drafted < 400);
    }
    draft_switch deceived;
    int          drafted = 0;
    for (int i = 0; i < 4000; ++i) {   // drafts that promise a lot and yield nothing
        if (deceived.draft_now()) {
            ++drafted;
            deceived.observe(1, 0.0, 4.0, 20.0, 0.1);
        }
    }
    CHECK(drafted < 40 && deceived.resting());
}

static void switches() {
    draft_switch s;
    CHECK(s.rate() == 0 && s.draft_now() && !s.resting());
    for (int i = 0; i < 50; ++i) {
        s.observe(1, 7.0, 7.0, 40.0, 0.1);
        CHECK(s.draft_now());
    }
    CHECK(s.rate() > 0.18);
    for (int i = 0; i < 300; ++i) {   // uneven yields do not stop what gains on average, nor do hard passages
        const bool hard = i % 12 < 4;
        s.observe(1, hard ? 0.0 : i % 3 == 0 ? 9.0 : 2.0, hard ? 1.0 : 3.0, 18.0, 0.1);
        CHECK(s.draft_now());
    }
    int until_rest = 0;
    while (s.draft_now() && until_rest < 100) {   // hard text: what was gained before does not count
        s.observe(1, 0.3, 0.5, 30.0, 0.1);
        ++until_rest;
    }
    CHECK(until_rest >= 1 && until_rest < 6);
    lost(s, 2000, 0.0);
    CHECK(s.resting());
    s.new_text();   // a new answer is tried at once, and may lose a little at first
    CHECK(s.draft_now());
    s.observe(1, 0.6, 0.6, 20.0, 0.1);
    CHECK(s.draft_now());
    for (int i = 0; i < 20; ++i) {   // while it gains, it goes on
        s.observe(1, 3.0, 3.0, 20.0, 0.1);
        CHECK(s.draft_now());
    }
    while (s.draft_now()) {
        s.observe(1, 0.0, 0.0, 20.0, 0.1);
    }
    int rest = 1;
    while (!s.draft_now()) {   // a rest is short after text that gained
        ++rest;
    }
    CHECK(rest == 4);
    s.observe(1, 0.0, 3.0, 20.0, 0.1);   // a trial with bad luck is not the next rest
    CHECK(s.draft_now());
    lost(s, 2000, 0.0);
    s.new_text(3);   // of others it would cost as much: within 64 steps
    CHECK(!s.draft_now());
    rest = 1;
    while (!s.draft_now()) {
        ++rest;
    }
    CHECK(rest > 8 && rest <= 64);
    s.observe(1, 0.6, 0.6, 20.0, 0.1);   // and without a loss
    CHECK(!s.draft_now());
    draft_switch wide;   // the limit holds for each slot
    for (int i = 0; i < 3; ++i) {
        wide.observe(8, 8 * 0.5, 8 * 0.5, 160.0, 0.1);
        CHECK(wide.draft_now());
    }
}

// A pass that fails is followed by a rest, which grows until a pass succeeds.
static void failures_rest() {
    draft_switch s;
    const auto   rest = [&] {
        int32_t n = 0;
        s.fail();
        while (!s.draft_now()) {
            ++n;
        }
        return n;
    };
    CHECK(rest() == 4 && rest() == 8 && rest() == 16);
    s.fail();
    s.new_text();   // a new answer tries at once, but a failure still counts
    CHECK(s.draft_now() && rest() == 64);
    s.observe(1, 3.0, 3.0, 20.0, 0.1);
    CHECK(rest() == 4);
}

// A failure in a trial is no further loss.
static void a_failure_is_no_loss() {
    draft_switch s;
    const auto   rest = [&] {
        int32_t n = 0;
        while (!s.draft_now()) {
            ++n;
        }
        return n;
    };
    while (!s.resting()) {
        s.observe(1, 0, 0, 40.0, 0.1);
    }
    CHECK(rest() == 4);
    s.fail();
    CHECK(rest() == 4);
    s.observe(1, 0, 0, 40.0, 0.1);
    CHECK(rest() == 8);
}

static length_choice of_drafter(int32_t drafter, double rate) {
    length_choice c;
    c.drafter = drafter;
    c.rate = c.known = rate;
    return c;
}

// How many of n steps are drafted by a drafter while the two have these rates.
static int32_t count_steps(drafter_turns & turns, int32_t drafter, int32_t n, double rate0, double rate1) {
    int32_t count = 0;
    for (int32_t i = 0; i < n; ++i) {
        count += turns.choose({ of_drafter(0, rate0), of_drafter(1, rate1) }).drafter == drafter;
    }
    return count;
}

static void drafters_take_turns() {
    drafter_turns turns;
    CHECK(turns.choose({ of_drafter(0, 0), of_drafter(1, 0) }).drafter == 0);   // what is unknown comes first
    CHECK(turns.choose({ of_drafter(0, 1), of_drafter(1, 0) }).drafter == 1);
    const int32_t n_worse = count_steps(turns, 0, 1000, 1, 2);
    CHECK(n_worse >= 4 && n_worse <= 6);               // after 16 steps, 32, 64 ...
    CHECK(count_steps(turns, 0, 1000, 2.1, 2) <= 2);   // better by too little
    turns.new_text();
    count_steps(turns, 0, 200, 3, 2);   // some comparisons are enough
    CHECK(count_steps(turns, 1, 40, 3, 2) <= 1);
    CHECK(turns.choose({ of_drafter(1, 2) }).drafter == 1);   // where the other one must not draft
}

// A rate that was found in an easy passage is not compared with one of a hard passage.
static void passages_differ() {
    drafter_turns turns;
    turns.choose({ of_drafter(0, 0), of_drafter(1, 0) });
    turns.choose({ of_drafter(0, 4), of_drafter(1, 0) });
    CHECK(turns.choose({ of_drafter(0, 4), of_drafter(1, 3) }).drafter == 0);
    int32_t n_other = 0;
    double  found   = 3;   // of the other drafter, when it drafted last
    for (int32_t i = 0; i < 1000; ++i) {
        const bool   hard  = i / 20 % 2 == 1;
        const double now   = hard ? 1 : 4;
        const bool   other = turns.choose({ of_drafter(0, now), of_drafter(1, found) }).drafter == 1;
        found              = other ? 0.75 * now : found;
        n_other += other;
    }
    CHECK(n_other <= 20);
}

// What one that was left out had promised before is not compared with what the other one promises now.
static void the_left_out_are_not_compared() {
    drafter_turns turns;
    turns.choose({ of_drafter(0, 4), of_drafter(1, 4) });
    CHECK(turns.choose({ of_drafter(0, 4), of_drafter(1, 4) }).drafter == 0);
    for (int i = 0; i < 3; ++i) {
        CHECK(turns.choose({ of_drafter(1, 1) }).drafter == 1);
    }
    CHECK(turns.choose({ of_drafter(0, 4), of_drafter(1, 1) }).drafter == 1);
}

static void drafters_that_failed_rest() {
    using drafters = std::vector<int32_t>;
    drafter_rests rests;
    CHECK(rests.ready({ 0, 1 }) == drafters({ 0, 1 }));
    for (const int32_t rest : { 16, 32 }) {
        rests.fail(0);
        CHECK(rests.any_ready({ 0, 1 }) && !rests.any_ready({ 0 }));
        CHECK(rests.ready({ 0 }) == drafters({ 0 }));   // there is no other one
        for (int32_t i = 0; i < rest; ++i) {
            CHECK(rests.ready({ 0, 1 }) == drafters({ 1 }));
            rests.drafted(1);
        }
        CHECK(rests.ready({ 0, 1 }) == drafters({ 0, 1 }));
    }
    rests.fail(0);
    rests.fail(1);   // both fail: in turn
    CHECK(rests.ready({ 0, 1 }) == drafters({ 1 }));
    rests.fail(1);
    rests.fail(1);
    CHECK(rests.ready({ 0, 1 }) == drafters({ 0, 1 }));
    rests.fail(1);
    CHECK(rests.ready({ 0, 1 }) == drafters({ 0 }));
    rests.drafted(0);   // it works again
    rests.fail(0);
    CHECK(rests.ready({ 0, 1 }) == drafters({ 0 }));

    drafter_rests longer;
    for (int32_t i = 0; i < 5; ++i) {
        longer.fail(0);
    }
    longer.new_text();
    for (int32_t i = 0; i < 16; ++i) {
        CHECK(longer.ready({ 0, 1 }) == drafters({ 1 }));
        longer.drafted(1);
    }
    CHECK(longer.ready({ 0, 1 }) == drafters({ 0, 1 }));
}

int main() {
    drafters_take_turns();
    passages_differ();
    the_left_out_are_not_compared();
    drafters_that_failed_rest();
    failures_rest();
    a_failure_is_no_loss();
    losses_are_bounded();
    switches();
    curves();
    cells();
    a_busy_machine();
    nodes_against_brute_force();
    unseen_widths_follow();
    unseen_widths_are_bounded();
    first_passes_weigh_more();
    a_new_width_starts_from_its_neighbours();
    padded_widths();
    lengths();
    return TEST_RESULT;
}
