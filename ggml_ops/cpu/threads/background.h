// Threads in the background, which the system runs only where no other one wants the core (base/thread_priority.h): the
// encoder of media. While a step computes they wait, between two ops, or two tasks of one of ours.

#pragma once

#include <atomic>

namespace dflash {

extern std::atomic<int> n_background_holds;

// Whether the calling thread is one: on Linux those whose policy says so, which threads that it starts inherit. Asked
// of the system once.
bool is_in_background();
// From now on they wait (true), or one who wanted that no longer does: nothing, if that one is in the background, too.
void hold_background(bool held);
// Of a thread in the background: returns when nobody holds it. Others return at once.
void wait_in_background();

// Between two tasks.
inline void let_others_go_first() {
    if (n_background_holds.load(std::memory_order_relaxed) > 0) {
        wait_in_background();
    }
}

}   // namespace dflash
