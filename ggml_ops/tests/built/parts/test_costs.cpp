// Measured costs: a pass is repeated until the caches are warm, and the best time counts.

#include "budget/costs.h"

#include "check.h"

#include <cmath>
#include <map>

using namespace dflash;

static double no_time() { return 0; }

// The first pass of each width takes 9 ms longer, and the third half a millisecond, as if the machine were busy at
// times.
struct machine {
    std::map<int32_t, int32_t> n_verified, n_drafted;

    double verify(int32_t rows) {
        const int32_t n = n_verified[rows]++;
        return 10.0 + rows + (n == 0 ? 9.0 : n == 2 ? 0.5 : 0.0);
    }
    double draft(int32_t n_tokens) {
        const int32_t n = n_drafted[n_tokens]++;
        return 5.0 + n_tokens / 16.0 + (n < 2 ? 3.0 : 0.0);
    }
};

static void the_best_time_counts() {
    machine           m;
    pass_costs        costs;
    const pass_shapes shapes = { 1, {}, 32 };
    costs.measure({ [&](int32_t rows) { return m.verify(rows); }, {} }, shapes, no_time);
    for (const int32_t rows : { 1, 2, 4, 8, 16, 32 }) {
        CHECK(costs.verify.at(rows) == 10.0 + rows);
    }
    CHECK(!costs.verify.has(48));
    CHECK(costs.rebuild_ms == 9.0);
    CHECK(costs.drafts.empty());
    CHECK(!costs.padding_pays());
}

// Another program takes the machine during all passes of one width, and the first ones of one row.
static void a_disturbed_width_is_timed_again() {
    std::map<int32_t, int32_t> n_verified;
    const auto                 verify = [&](int32_t rows) {
        const int32_t n         = n_verified[rows]++;
        const bool    disturbed = n < 3 && (rows == 1 || rows == 6);
        return 10.0 + rows + (disturbed ? 20.0 : 0.0) + (rows == 15 ? 7.0 : 0.0);
    };
    pass_costs costs;
    costs.measure({ verify, {} }, { 1, {}, 16 }, no_time);
    CHECK(costs.verify.at(1) == 11.0 && costs.verify.at(6) == 16.0);
    CHECK(costs.verify.at(15) == 32.0 && costs.padding_pays());   // it is slower for good
    CHECK(n_verified[3] == 3 && n_verified[4] == 5 && n_verified[6] == 5);
}

// A target pass just behind another one is faster than steps will find it.
static void a_width_is_timed_again_beside_the_drafter() {
    std::map<int32_t, int32_t> n_verified;
    bool                       drafted = false;
    const auto                 draft   = [&](int32_t, int32_t) {
        drafted = true;
        return 1.0;
    };
    const auto verify = [&](int32_t rows) {
        const double ms = 10.0 + rows + (drafted ? 0.0 : -2.0) + (n_verified[rows]++ < 3 && rows == 6 ? 20.0 : 0.0);
        drafted         = false;
        return ms;
    };
    pass_costs costs;
    costs.measure({ verify, { draft } }, { 1, { 16 }, 8 }, no_time);
    CHECK(costs.verify.at(6) == 16.0);
}

static void blocks_are_timed_warm() {
    machine           m;
    pass_costs        costs;
    const pass_shapes shapes = { 2, { 16 }, 4 };
    costs.measure({ [&](int32_t rows) { return m.verify(rows); },
                      { [&](int32_t n_slots, int32_t length) { return m.draft(n_slots * length); } } },
        shapes, no_time);
    for (const int32_t n_tokens : { 4, 8, 16, 32 }) {
        CHECK(costs.drafts[0].at(n_tokens) == 5.0 + n_tokens / 16.0);
    }
}

// A machine whose every pass takes a quarter of a second: the clock runs out while the first widths are measured.
struct slow_machine {
    double                     elapsed = 0;
    std::map<int32_t, int32_t> n_verified;

    double run(double ms) {
        elapsed += 250;
        return ms;
    }
    pass_costs measure(int32_t n_slots, const std::function<double(int32_t)> & verify_ms) {
        pass_costs         costs;
        const timed_passes passes = { [&](int32_t rows) { return run(verify_ms(rows)); },
            { [&](int32_t, int32_t length) { return run(5.0 + length); } } };
        costs.measure(passes, { n_slots, { 16 }, 64 }, [&] { return elapsed; });
        return costs;
    }
};

// Widths between which nothing has to be guessed, and blocks likewise.
static void slow_machines_measure_the_ends() {
    for (const int32_t n_slots : { 1, 4 }) {
        slow_machine     m;
        const pass_costs costs = m.measure(n_slots, [](int32_t rows) { return 250.0 + rows; });
        CHECK(costs.verify.points() == (std::map<int32_t, double>{ { 1, 251 }, { 4, 254 }, { 8, 258 }, { 16, 266 } }));
        CHECK(costs.drafts[0].has(4) && costs.drafts[0].has(16) && costs.drafts[0].points().size() == 2);
        CHECK(m.elapsed < 27 * 250);
    }
}

// A width that cannot take so long is timed again even then.
static void an_impossible_width_is_timed_again() {
    slow_machine     m;
    const pass_costs costs = m.measure(1, [&](int32_t rows) {
        const bool disturbed = ++m.n_verified[rows] <= 3 && rows == 4;
        return 250.0 + rows + (disturbed ? 800.0 : 0.0);
    });
    CHECK(costs.verify.at(4) == 254 && m.n_verified[4] == 5 && m.n_verified[16] == 3);
}

static void padding_pays_where_it_saves_time() {
    pass_costs costs;
    costs.verify.set(16, 10.0);
    CHECK(!costs.padding_pays());
    costs.verify.set(15, 10.4);
    CHECK(!costs.padding_pays());
    costs.verify.set(15, 11.0);
    CHECK(costs.padding_pays());
}

// What a change of width costs follows the passes that change it; a slow one counts as twice the usual.
static void changes_of_width_are_learned() {
    pass_costs costs;
    costs.rebuild_ms = 1;
    for (int i = 0; i < 200; ++i) {
        costs.observe_rebuild(i % 2 == 0 ? 1.4 : 1.8);
    }
    CHECK(std::fabs(costs.rebuild_ms - 1.6) < 0.05);
    costs.observe_rebuild(500);
    CHECK(costs.rebuild_ms < 1.8);
    for (int i = 0; i < 200; ++i) {
        costs.observe_rebuild(-0.3);
    }
    CHECK(costs.rebuild_ms >= 0 && costs.rebuild_ms < 0.01);
    for (int i = 0; i < 200; ++i) {   // nothing is there to double
        costs.observe_rebuild(2);
    }
    CHECK(costs.rebuild_ms > 1.5);
}

// Wide passes are for several slots. Every width would take seconds of a large model's first start.
static void few_widths_are_measured() {
    for (const int32_t n_slots : { 1, 2 }) {
        machine    m;
        pass_costs costs;
        costs.measure({ [&](int32_t rows) { return m.verify(rows); }, {} }, { n_slots, {}, 64 }, no_time);
        CHECK(costs.verify.points().size() == (n_slots == 1 ? 10 : 13));
        CHECK(costs.verify.has(64) == (n_slots > 1) && !costs.verify.has(5) && costs.verify.has(15));
    }
}

int main() {
    changes_of_width_are_learned();
    few_widths_are_measured();
    padding_pays_where_it_saves_time();
    the_best_time_counts();
    a_disturbed_width_is_timed_again();
    a_width_is_timed_again_beside_the_drafter();
    blocks_are_timed_warm();
    slow_machines_measure_the_ends();
    an_impossible_width_is_timed_again();
    return TEST_RESULT;
}
