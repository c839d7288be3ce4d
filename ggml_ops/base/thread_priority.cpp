#include "base/thread_priority.h"

#if defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include <windows.h>
#elif defined(__APPLE__)
#include <pthread/qos.h>
#elif defined(__linux__)
#include <sched.h>
#endif

namespace dflash {

// What fails leaves the priority as it is.
void lower_thread_priority() {
#if defined(_WIN32)
    (void) SetThreadPriority(GetCurrentThread(), THREAD_PRIORITY_LOWEST);
#elif defined(__APPLE__)
    (void) pthread_set_qos_class_self_np(QOS_CLASS_UTILITY, 0);
#elif defined(__linux__)
    const sched_param none = {};
    (void) sched_setscheduler(0, SCHED_IDLE, &none);   // 0: this thread. Any other one that wakes goes first at once
#endif
}

}   // namespace dflash
