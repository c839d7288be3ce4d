#include "cpu/threads/background.h"

#include <condition_variable>
#include <mutex>

#if defined(__linux__)
#include <sched.h>
#endif

namespace dflash {

std::atomic<int> n_background_holds{ 0 };

namespace {

struct hold {
    std::mutex              mutex;
    std::condition_variable ended;
};

// Never destroyed: threads may wait when the process ends.
hold & the_hold() {
    static hold * const one = new hold;
    return *one;
}

}   // namespace

bool is_in_background() {
#if defined(__linux__)
    static thread_local const bool known = sched_getscheduler(0) == SCHED_IDLE;   // 0: this thread
    return known;
#else
    return false;   // nothing tells these threads from others
#endif
}

void hold_background(bool held) {
    if (is_in_background()) {   // the whole process is: its own threads would wait
        return;
    }
    {
        const std::lock_guard<std::mutex> lock(the_hold().mutex);
        n_background_holds += held ? 1 : -1;
    }
    if (!held) {
        the_hold().ended.notify_all();
    }
}

void wait_in_background() {
    if (!is_in_background()) {
        return;
    }
    std::unique_lock<std::mutex> lock(the_hold().mutex);
    the_hold().ended.wait(lock, [] { return n_background_holds == 0; });
}

}   // namespace dflash
