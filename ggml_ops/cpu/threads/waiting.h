// How threads of the CPU backend wait for each other: they spin, and sleep if that takes long. Hundreds of waits a
// token are over in microseconds, sooner than a thread can be woken; but a thread that has lost its core to another
// program comes back after milliseconds, and would come back later still if those that wait kept theirs (patches/0030).

#pragma once

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Of a pool of threads; begins as zeros.
struct dflash_waiting {
    int n_asleep;
    int spin_us;   // for how long the next wait spins, 0: not yet known
};

// Returns once *value is no longer `old`. `value` is an atomic int; whoever changes it calls dflash_wake() then.
void dflash_wait(struct dflash_waiting * waiting, int * value, int old);
void dflash_wake(struct dflash_waiting * waiting, int * value);

// Spins until done(what), for as long as a pool without work should. Returns whether it is done.
bool dflash_spin(struct dflash_waiting * waiting, bool (*done)(void * what), void * what);

// Of the calling thread: how long it has slept in dflash_wait() since it began; and a steady clock. ns.
int64_t dflash_slept(void);
int64_t dflash_now(void);

#ifdef __cplusplus
}
#endif
