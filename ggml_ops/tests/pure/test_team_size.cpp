// How many threads compute a graph: alone on a machine, beside another program, and after that has ended.

#include "cpu/threads/team_size.h"

#include "check.h"

using namespace dflash;

static constexpr int64_t MS = 1'000'000;

// Graphs of one kind, one after another. A thread that shares its core is late each time.
struct machine {
    int     n_cores, n_busy = 0;
    int64_t work     = 8 * MS;   // of a graph, for one thread
    int64_t now      = 0;
    int     n_graphs = 0, n_trials = 0;   // with fewer threads than available

    void run(team_size & team, int64_t until) {
        for (const int64_t end = now + until; now < end; ++n_graphs) {
            const int64_t half = n_graphs % 2;   // a target's and a drafter's graphs alternate
            const int     size = team.choose((uint64_t) half, now);
            const int64_t each = work / (1 + 3 * half) / size, late = size > n_cores - n_busy ? 3 * each / 2 : 0;
            now += each + late;
            team.observe((uint64_t) half, size, each + late, late, now);
            n_trials += size < n_cores;
        }
    }
};

static void alone() {
    machine   m{ 8 };
    team_size team(8);
    m.run(team, 5000 * MS);
    CHECK(team.size() == 8 && m.n_trials == 0);
}

static void beside_others() {
    for (int n_busy : { 1, 3 }) {
        machine   m{ 8, n_busy };
        team_size team(8);
        m.run(team, 3000 * MS);
        CHECK(team.size() == 8 - n_busy);
        m.n_busy = 0;
        m.run(team, 8000 * MS);
        CHECK(team.size() == 8);
    }
}

// Two threads that wait half of the time are as fast as one that does not.
static void no_gain() {
    team_size team(2);
    int64_t   now     = 0;
    int       n_small = 0, n_graphs = 0;
    for (; now < 20'000 * MS; ++n_graphs) {
        const int size = team.choose(0, now);
        now += 5 * MS;
        team.observe(0, size, 5 * MS, size == 2 ? 2 * MS : 0, now);
        n_small += size == 1;
    }
    CHECK(team.size() == 2 && n_small > 0 && n_small < n_graphs / 15);
}

// A smaller team that is much slower leaves its trial soon, and the first reading of a model's pages starts none.
static void hopeless() {
    team_size team(2);
    int64_t   now     = 0;
    int       n_small = 0;
    for (int i = 0; now < 900 * MS; ++i) {
        const int     size = team.choose(0, now);
        const int64_t took = (size == 2 ? 10 : 20) * MS;
        now += took;
        team.observe(0, size, took, size == 2 ? 2 * MS : 0, now);
        n_small += size == 1;
        CHECK(now > 500 * MS || n_small == 0);
    }
    CHECK(team.size() == 2 && n_small == 2);
}

// A single late window starts no trial.
static void late_once() {
    team_size team(2);
    int64_t   now = 0;
    for (int i = 0; now < 5000 * MS; ++i) {
        CHECK(team.choose(0, now) == 2);
        now += 20 * MS;
        team.observe(0, 2, 20 * MS, i % 2 ? 0 : 10 * MS, now);
    }
}

// Short requests with idle time between them: the pause between trials counts compute time only.
static void idle_between() {
    team_size team(2);
    int64_t   now     = 0;
    int       n_small = 0, n_graphs = 0;
    for (int request = 0; request < 200; ++request, now += 10'000 * MS) {
        for (int i = 0; i < 20; ++i, ++n_graphs) {
            const int     size = team.choose(0, now);
            const int64_t took = (size == 2 ? 6 : 10) * MS;
            now += took;
            team.observe(0, size, took, size == 2 ? 1 * MS : 0, now);
            n_small += size == 1;
        }
    }
    CHECK(team.size() == 2 && n_small > 0 && n_small < n_graphs / 30);
}

// More threads than cores, and another program uses one of two cores: down by halves.
static void too_many() {
    const int64_t ms[] = { 0, 10, 16, 36, 28 };
    team_size     team(4);
    for (int64_t now = 0; now < 3000 * MS;) {
        const int size = team.choose(0, now);
        now += ms[size] * MS;
        team.observe(0, size, ms[size] * MS, size > 1 ? ms[size] * MS / 3 : 0, now);
    }
    CHECK(team.size() == 1);
}

// Kinds of graphs that only one of the two sizes has computed do not count.
static void unlike_graphs() {
    team_size team(2);
    int64_t   now = 0;
    for (uint64_t i = 0; i < 1000; ++i) {
        const int size = team.choose(i, now);
        CHECK(size == 2);
        now += 10 * MS;
        team.observe(i, size, 10 * MS, 5 * MS, now);
    }
    CHECK(team.size() == 2);
}

static void one_thread() {
    team_size team(1);
    for (int64_t now = 0; now < 1000 * MS; now += 10 * MS) {
        CHECK(team.choose(0, now) == 1);
        team.observe(0, 1, 10 * MS, 10 * MS, now);
    }
}

int main() {
    alone();
    beside_others();
    no_gain();
    hopeless();
    late_once();
    idle_between();
    too_many();
    unlike_graphs();
    one_thread();
    return TEST_RESULT;
}
