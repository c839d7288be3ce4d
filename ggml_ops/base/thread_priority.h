// How urgent what a thread computes is.

#pragma once

namespace dflash {

// Lets other threads go first wherever this one wants the same core. On Linux the threads that it starts follow it.
void lower_thread_priority();

}   // namespace dflash
