// Functions that code compiled with a current glibc and libstdc++ needs, built on the glibc of 2018 (2.28). Linked into
// each library of a portable wheel (docs/building.md#wheels). A newer glibc has the same functions under newer version
// names; without these the program would not start on an older one. Nothing here is visible outside of the library.

#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define HIDDEN __attribute__((visibility("hidden")))

#if defined(__x86_64__)
#define FIRST_VERSION "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define FIRST_VERSION "GLIBC_2.17"
#else
#error "which version of glibc was the first on this processor?"
#endif

// The same computation; the version of 2.29 only lacks the error handling of System V.
#define OLD_MATH(name, parameters, arguments)                  \
    double old_##name parameters;                              \
    __asm__(".symver old_" #name "," #name "@" FIRST_VERSION); \
    HIDDEN double name parameters { return old_##name arguments; }

OLD_MATH(exp, (double x), (x))
OLD_MATH(exp2, (double x), (x))
OLD_MATH(log, (double x), (x))
OLD_MATH(log2, (double x), (x))
OLD_MATH(pow, (double x, double y), (x, y))

HIDDEN char __libc_single_threaded = 0;   // 2.32: "not known to be"

// 2.29
HIDDEN int getcpu(unsigned * cpu, unsigned * node) { return (int) syscall(SYS_getcpu, cpu, node, NULL); }

// 2.36
HIDDEN uint32_t arc4random(void) {
    uint32_t value = 0;
    if (getentropy(&value, sizeof(value)) != 0) {
        abort();   // as glibc does
    }
    return value;
}

// 2.30. Older condition variables wait by the wall clock, so the remaining time is added to the current time.
HIDDEN int pthread_cond_clockwait(
    pthread_cond_t * condition, pthread_mutex_t * mutex, clockid_t clock, const struct timespec * until) {
    const long      second = 1000000000;
    struct timespec now, end;
    clock_gettime(clock, &now);
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += until->tv_sec - now.tv_sec;
    end.tv_nsec += until->tv_nsec - now.tv_nsec;
    if (end.tv_nsec < 0) {
        end.tv_nsec += second;
        end.tv_sec--;
    } else if (end.tv_nsec >= second) {
        end.tv_nsec -= second;
        end.tv_sec++;
    }
    return pthread_cond_timedwait(condition, mutex, &end);
}
