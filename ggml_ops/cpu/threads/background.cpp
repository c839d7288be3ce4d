#include "cpu/threads/background.h"

#include <condition_variable>
#include <mutex>

#if defined(__linux__)
#include <sched.h>
#endif

namespace dflash {

std::atomic<bool> background_has_pause{ false };

namespace {

struct pause {
    std::mutex                   mutex;
    std::condition_variable      changed;
    background_clock::time_point begin, end;
};

// Never destroyed: threads may wait when the process ends.
pause & the_pause() {
    static pause * const one = new pause;
    return *one;
}

}   // namespace

bool is_in_background() {
#if defined(__linux__)
    static thread_local const bool known = sched_getscheduler(0) == SCHED_BATCH;   // 0: this thread
    return known;
#else
    return false;   // nothing tells these threads from others
#endif
}

void pause_background(background_clock::time_point begin, background_clock::time_point end) {
    if (is_in_background()) {   // the whole process is: its own threads would wait
        return;
    }
    pause & p = the_pause();
    {
        const std::lock_guard<std::mutex> lock(p.mutex);
        p.begin              = begin;
        p.end                = end;
        background_has_pause = begin < end;
    }
    p.changed.notify_all();
}

void wait_in_background() {
    if (!is_in_background()) {
        return;
    }
    pause &                      p = the_pause();
    std::unique_lock<std::mutex> lock(p.mutex);
    for (auto now = background_clock::now(); p.begin <= now && now < p.end; now = background_clock::now()) {
        const auto end = p.end;   // changes meanwhile
        p.changed.wait_until(lock, end);
    }
}

}   // namespace dflash
