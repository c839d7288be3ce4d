// How panels are distributed: each once, in whole grains, in long stretches first, so that threads finish together.

#include "cpu/gemm/panel_tasks.h"

#include "check.h"

#include <algorithm>
#include <vector>

using namespace dflash;

static constexpr size_t SMALL = 64 << 10;   // bytes: one panel fills a task

static int64_t size_of(const panel_tasks & tasks, int64_t task) { return tasks.begin(task + 1) - tasks.begin(task); }

static void every_panel_once() {
    for (const int grain : { 1, 4, 16 }) {
        for (const int n_threads : { 1, 2, 3, 8, 64 }) {
            for (const size_t bytes : { (size_t) 100, SMALL / 8, SMALL }) {
                for (int64_t n_panels = 0; n_panels < 3000; n_panels += 1 + n_panels / 7) {
                    const panel_tasks tasks(n_panels, n_threads, bytes, grain);
                    CHECK(tasks.begin(0) == 0 && tasks.begin(tasks.count()) == n_panels);
                    for (int64_t i = 0; i < tasks.count(); ++i) {
                        CHECK(size_of(tasks, i) >= 0 && tasks.begin(i) % grain == 0);
                    }
                }
            }
        }
    }
}

static void long_stretches_first() {
    const panel_tasks tasks(4096, 4, SMALL, 4);
    for (int64_t i = 0; i < 4; ++i) {
        CHECK(size_of(tasks, i) == 3 * 4096 / 4 / 4);   // three quarters, in one task per thread
    }
    for (int64_t i = 4; i < tasks.count(); ++i) {
        CHECK(size_of(tasks, i) <= size_of(tasks, i - 1));
    }
    CHECK(size_of(tasks, tasks.count() - 1) <= 8);
    CHECK(panel_tasks(4096, 4, 100, 4).count() == 4);   // the whole matrix is too small to be cut again
}

// Threads take tasks in order. The last thread has this speed, all others 1.
static double time_of(const panel_tasks & tasks, int n_threads, double speed) {
    std::vector<double> now(n_threads, 0.0);
    for (int64_t i = 0; i < tasks.count(); ++i) {
        const size_t next = i < n_threads ? (size_t) i : std::min_element(now.begin(), now.end()) - now.begin();
        now[next] += (double) size_of(tasks, i) / (next + 1 == now.size() ? speed : 1.0);
    }
    return *std::max_element(now.begin(), now.end());
}

static void threads_finish_together() {
    for (const int n_threads : { 2, 4, 8 }) {
        for (const double speed : { 1.0, n_threads == 2 ? 0.62 : 0.76 }) {
            const panel_tasks tasks(8192, n_threads, SMALL, 4);
            const double      ideal = 8192 / (n_threads - 1 + speed);
            CHECK(time_of(tasks, n_threads, speed) < 1.03 * ideal);
        }
    }
}

int main() {
    every_panel_once();
    long_stretches_first();
    threads_finish_together();
    return TEST_RESULT;
}
