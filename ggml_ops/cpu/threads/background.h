// Low-priority threads (the media encoder's, base/thread_priority.h). They pause while a step computes or is about to
// start, since a thread of the step that wakes on a core where one of them computes would come late. They check for
// that between ops, and between tasks of our own ops.

#pragma once

#include <atomic>
#include <chrono>

namespace dflash {

using background_clock = std::chrono::steady_clock;

extern std::atomic<bool> background_has_pause;

// Whether the calling thread is one. On Linux its scheduling policy says so, which it hands on to threads that it
// starts; the system is asked once.
bool is_in_background();
// Their next pause, in place of the one before: none, if it ends as it begins. Nothing, if the caller is one of them.
void pause_background(background_clock::time_point begin, background_clock::time_point end);
// Of a thread in the background: returns when there is no pause. Others return at once.
void wait_in_background();

// Between two tasks.
inline void let_others_go_first() {
    if (background_has_pause.load(std::memory_order_relaxed)) {
        wait_in_background();
    }
}

}   // namespace dflash
