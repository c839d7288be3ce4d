#include "cpu/threads/waiting.h"

#include "cpu/threads/background.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>

#if defined(__linux__) && !defined(DFLASH_NO_FUTEX)
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#else
#include <condition_variable>
#include <mutex>
#endif

#if defined(__x86_64__) || defined(_M_X64) || defined(__i386__) || defined(_M_IX86)
#include <immintrin.h>
#endif

namespace dflash {

namespace {

// Adaptive spinning: twice as long as last time if that was enough, half as long if it was not. So waits spin long on
// an idle machine, and hardly at all where threads compete for cores.
constexpr int     MIN_SPIN_US = 2, MAX_SPIN_US = 100;
constexpr int64_t IDLE_SPIN_US = 1000;   // between graphs if waits are short: the host samples in between
constexpr int     LOOKS        = 16;     // between two reads of the clock
// Alone on the machine, threads stay apart once one has moved. Beside other programs each move disturbs all: if the
// next one is wanted right after the pause, that is twice as long.
constexpr int MIN_MOVE_PAUSE_MS = 20, MAX_MOVE_PAUSE_MS = 5000;

thread_local int64_t slept_ns = 0;

static_assert(sizeof(std::atomic<int>) == sizeof(int) && std::atomic<int>::is_always_lock_free);

std::atomic<int> & atomic_of(int * value) { return *reinterpret_cast<std::atomic<int> *>(value); }

void relax() {
#if defined(__x86_64__) || defined(_M_X64) || defined(__i386__) || defined(_M_IX86)
    _mm_pause();
#elif defined(__aarch64__) && defined(__GNUC__)
    __asm__ volatile("yield" ::: "memory");
#endif
}

// Polls until done() or for at least `spin_us`.
template <class F> bool spin_until(const F & done, int64_t spin_us) {
    for (int64_t end = 0;;) {
        for (int i = 0; i < LOOKS; ++i) {
            if (done()) {
                return true;
            }
            relax();
        }
        const int64_t now = dflash_now();
        end               = end ? end : now + 1000 * spin_us;
        if (now >= end) {
            return false;
        }
    }
}

// A sleeper increments the count before it checks the value again, and a waker changes the value before it checks the
// count: one of them always sees the other.
#if defined(__linux__) && !defined(DFLASH_NO_FUTEX)
// Returns at once if the value has changed.
void sleep_while(int * value, int old) { syscall(SYS_futex, value, FUTEX_WAIT_PRIVATE, old, nullptr, nullptr, 0); }

void wake_all(int * value) { syscall(SYS_futex, value, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0); }

int this_core() { return sched_getcpu(); }

// Linux may wake a thread on its waker's core although others idle, and leaves both there while they sleep in turns.
void leave_core(int core) {
    cpu_set_t may, others;
    if (sched_getaffinity(0, sizeof(may), &may) != 0 || core < 0 || core >= CPU_SETSIZE) {
        return;   // a machine with more cores than fit
    }
    others = may;
    CPU_CLR(core, &others);
    if (CPU_COUNT(&others) > 0 && sched_setaffinity(0, sizeof(others), &others) == 0) {
        sched_setaffinity(0, sizeof(may), &may);
    }
}
#else
// One for all pools: few threads sleep, and they check again after waking.
struct bed {
    std::mutex              mutex;
    std::condition_variable change;
};

bed & the_bed() {
    static bed * const one = new bed;   // never destroyed: threads may sleep until the process ends
    return *one;
}

void sleep_while(int * value, int old) {
    std::unique_lock<std::mutex> lock(the_bed().mutex);
    the_bed().change.wait(lock, [&] { return atomic_of(value).load() != old; });
}

int  this_core() { return -1; }
void leave_core(int) {}

void wake_all(int *) {
    { std::lock_guard<std::mutex> lock(the_bed().mutex); }   // a thread that has checked the value is asleep by now
    the_bed().change.notify_all();
}
#endif

// Moves the calling thread, which has just been woken, if its waker runs on the same core.
void leave_waker(dflash_waiting & waiting) {
    const int core = this_core();
    if (core < 0 || core != atomic_of(&waiting.waker_core).load()) {
        return;
    }
    std::atomic<int> &moved = atomic_of(&waiting.moved_ms), &pause = atomic_of(&waiting.pause_ms);
    const int         now = (int) (dflash_now() / 1'000'000 % INT_MAX), since = now - moved.load(), last = pause.load();
    if (since >= 0 && since < last) {
        return;
    }
    const bool again = since >= 0 && since < 2 * last;
    pause.store(again ? std::min(MAX_MOVE_PAUSE_MS, 2 * last) : MIN_MOVE_PAUSE_MS);
    moved.store(now);
    leave_core(core);
}

}   // namespace

static void wait_for_change(dflash_waiting * waiting, int * value, int old) {
    std::atomic<int> &at = atomic_of(value), &spin_us = atomic_of(&waiting->spin_us);
    const auto        changed = [&] { return at.load(std::memory_order_acquire) != old; };
    const int         spin = spin_us.load(std::memory_order_relaxed), spin_now = spin ? spin : MAX_SPIN_US;
    if (spin_until(changed, spin_now)) {
        if (spin_now < MAX_SPIN_US) {
            spin_us.store(std::min(MAX_SPIN_US, 2 * spin_now), std::memory_order_relaxed);
        }
        return;
    }
    spin_us.store(std::max(MIN_SPIN_US, spin_now / 2), std::memory_order_relaxed);
    std::atomic<int> & n_asleep = atomic_of(&waiting->n_asleep);
    const int64_t      begin    = dflash_now();
    n_asleep.fetch_add(1);
    while (at.load() == old) {
        sleep_while(value, old);
    }
    n_asleep.fetch_sub(1);
    slept_ns += dflash_now() - begin;
    leave_waker(*waiting);
}

}   // namespace dflash

void dflash_wait(dflash_waiting * waiting, int * value, int old) {
    dflash::wait_for_change(waiting, value, old);
    dflash::let_others_go_first();   // between two ops
}

void dflash_wake(dflash_waiting * waiting, int * value) {
    using namespace dflash;
    if (atomic_of(&waiting->n_asleep).load() > 0) {
        atomic_of(&waiting->waker_core).store(this_core());
        wake_all(value);
    }
    let_others_go_first();
}

bool dflash_spin(dflash_waiting * waiting, bool (*done)(void * what), void * what) {
    using namespace dflash;
    const int  spin   = atomic_of(&waiting->spin_us).load(std::memory_order_relaxed);
    const bool shared = spin && spin < MAX_SPIN_US;   // other programs use the cores too
    return spin_until([&] { return done(what); }, shared ? spin : IDLE_SPIN_US);
}

int64_t dflash_slept(void) { return dflash::slept_ns; }

int64_t dflash_now(void) {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}
