#include "base/thread_priority.h"

#if defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include <windows.h>
#elif defined(__APPLE__)
#include <pthread/qos.h>
#elif defined(__linux__)
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#endif

namespace dflash {

#if defined(__linux__)
// A third of the time of another thread that wants the same core: with none at all (SCHED_IDLE), a busy neighbour would
// stop it.
static constexpr int NICE = 5;
#endif

// What fails leaves the priority as it is.
void lower_thread_priority() {
#if defined(_WIN32)
    (void) SetThreadPriority(GetCurrentThread(), THREAD_PRIORITY_LOWEST);
#elif defined(__APPLE__)
    (void) pthread_set_qos_class_self_np(QOS_CLASS_UTILITY, 0);
#elif defined(__linux__)
    const sched_param none = {};
    (void) sched_setscheduler(0, SCHED_BATCH, &none);   // 0: this thread. The policy says who is in the background
    (void) setpriority(PRIO_PROCESS, 0, std::max(NICE, getpriority(PRIO_PROCESS, 0)));
#endif
}

}   // namespace dflash
