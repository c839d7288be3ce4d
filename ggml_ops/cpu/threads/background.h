// Threads in the background, which others go before wherever they want the same core (base/thread_priority.h): the
// encoder of media. They pause while a step computes and where one is about to, between two ops, or two tasks of one of
// ours: a thread that wakes on a core where one of them computes would come late.

#pragma once

#include <atomic>
#include <chrono>

namespace dflash {

using background_clock = std::chrono::steady_clock;

extern std::atomic<bool> background_has_pause;

// Whether the calling thread is one: on Linux those whose policy says so, which threads that it starts inherit. Asked
// of the system once.
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
