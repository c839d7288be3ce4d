// What the C entry points of libdflash share: errors of the calling thread, and strings that outlive the call.

#pragma once

#include <string>

namespace dflash {

// What dflash_last_error() says to this thread from now on.
void set_error(const std::string & message) noexcept;

// Inside a catch block only: takes the exception's message as the thread's error and returns its dflash_status.
int take_exception() noexcept;

// A copy for the caller, who releases it with dflash_free(). Throws std::bad_alloc.
char * dup_string(const std::string & text);

}   // namespace dflash
