// How threads of the CPU backend wait for each other: they spin, then sleep. Most of the hundreds of waits per token
// last microseconds, less than it takes to wake a thread. But a thread that lost its core to another program returns
// after milliseconds, and even later if the waiting threads kept their cores (patches/0030).

#pragma once

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// State of one thread pool, zero-initialized.
struct dflash_waiting {
    int n_asleep;
    int spin_us;      // how long the next wait spins, 0: not yet known
    int waker_core;   // where the thread runs that woke others last
    int moved_ms;     // when a thread last left that core
    int pause_ms;     // until one may do so again
};

// Returns once *value differs from `old`. `value` is an atomic int; call dflash_wake() after changing it.
void dflash_wait(struct dflash_waiting * waiting, int * value, int old);
void dflash_wake(struct dflash_waiting * waiting, int * value);

// Spins until done(what), or for as long as an idle pool should. Returns whether it is done.
bool dflash_spin(struct dflash_waiting * waiting, bool (*done)(void * what), void * what);

// How long the calling thread has slept in dflash_wait() so far, and the time of a steady clock. In ns.
int64_t dflash_slept(void);
int64_t dflash_now(void);

#ifdef __cplusplus
}
#endif
