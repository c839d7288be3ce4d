// Threads meet at barriers like ggml's, with more threads than cores: none is left behind, and a thread that waits for
// long yields its core.

#include "cpu/threads/waiting.h"

#include "check.h"

#include <atomic>
#include <chrono>
#include <ctime>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <sched.h>
#endif

static constexpr int N_THREADS = 6, N_ROUNDS = 3000;

static dflash_waiting   waiting  = {};
static int              n_passed = 0;   // read as an atomic, as in ggml
static std::atomic<int> n_here{ 0 };

static std::atomic<int> & atomic_asleep() { return reinterpret_cast<std::atomic<int> &>(waiting.n_asleep); }
static std::atomic<int> & passed() { return *reinterpret_cast<std::atomic<int> *>(&n_passed); }

static void barrier() {
    const int old = passed().load();
    if (n_here.fetch_add(1) == N_THREADS - 1) {
        n_here.store(0);
        passed().fetch_add(1);
        dflash_wake(&waiting, &n_passed);
    } else {
        dflash_wait(&waiting, &n_passed, old);
    }
}

template <class F> static void in_threads(const F & f) {
    std::vector<std::thread> threads;
    for (int i = 0; i < N_THREADS; ++i) {
        threads.emplace_back(f, i);
    }
    for (std::thread & thread : threads) {
        thread.join();
    }
}

static void rounds() {
    std::vector<int> at(N_THREADS, 0);
    std::atomic<int> n_wrong{ 0 };
    in_threads([&](int me) {
        for (int round = 1; round <= N_ROUNDS; ++round) {
            at[me] = round;
            barrier();
            for (int other : at) {
                n_wrong += other != round;
            }
            barrier();
        }
    });
    CHECK(n_wrong == 0);
    CHECK(waiting.n_asleep == 0);
}

#if defined(__linux__)
static double cpu_ms() {
    timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return 1e3 * (double) t.tv_sec + 1e-6 * (double) t.tv_nsec;
}

static void long_wait() {
    std::atomic<int> n_spun{ 0 }, n_slept{ 0 };
    in_threads([&](int me) {
        if (me == 0) {
            std::this_thread::sleep_for(std::chrono::milliseconds(300));
        }
        const double  before = cpu_ms();
        const int64_t slept  = dflash_slept();
        barrier();
        n_spun += cpu_ms() - before > 30;
        n_slept += dflash_slept() - slept > 100'000'000;
    });
    CHECK(n_spun == 0);
    CHECK(n_slept == N_THREADS - 1);
}
#else
static void long_wait() {}
#endif

#if defined(__linux__) && !defined(DFLASH_NO_FUTEX)
// A thread that is woken on its waker's core goes to another one, and may return.
static void crowded() {
    cpu_set_t may;
    CHECK(sched_getaffinity(0, sizeof(may), &may) == 0);
    if (CPU_COUNT(&may) < 2) {
        return;
    }
    int n_apart = 0;
    for (int round = 0; round < 20; ++round) {
        std::this_thread::sleep_for(std::chrono::milliseconds(30));   // longer than the pause between two moves
        const int        old = passed().load();
        std::atomic<int> core{ -1 };
        std::thread      waker([&] {
            while (core.load() < 0 || atomic_asleep().load() == 0) {
                std::this_thread::yield();
            }
            cpu_set_t there;
            CPU_ZERO(&there);
            CPU_SET(core.load(), &there);
            sched_setaffinity(0, sizeof(there), &there);
            passed().fetch_add(1);
            dflash_wake(&waiting, &n_passed);
            for (const int64_t end = dflash_now() + 2'000'000; dflash_now() < end;) {}
        });
        core.store(sched_getcpu());
        dflash_wait(&waiting, &n_passed, old);
        n_apart += sched_getcpu() != core.load();
        waker.join();
        cpu_set_t after;
        CHECK(sched_getaffinity(0, sizeof(after), &after) == 0 && CPU_EQUAL(&after, &may));
    }
    CHECK(n_apart > 0);   // on a busy machine it may come back at once
}
#else
static void crowded() {}
#endif

// A pool without work spins until there is some, or for a while.
static void spin() {
    int        n_looks = 0;
    const auto third   = [](void * n) { return ++*(int *) n == 3; };
    CHECK(dflash_spin(&waiting, third, &n_looks) && n_looks == 3);
    CHECK(!dflash_spin(&waiting, [](void *) { return false; }, nullptr));
}

int main() {
    rounds();
    long_wait();
    crowded();
    spin();
    return TEST_RESULT;
}
