// Errors: the exception that carries a dflash_status, and helpers shared by libdflash's C entry points.

#pragma once

#include "base/text.h"
#include "dflash.h"

#include <cstdint>
#include <stdexcept>
#include <string>

namespace dflash {

// An exception with its dflash_status. text: see concat().
struct status_error : std::runtime_error {
    dflash_status status;
    template <class... Parts>
    status_error(dflash_status status, const Parts &... text) : std::runtime_error(concat(text...)), status(status) {}
};

// Throw this text (see concat()), whose parts are evaluated in any case: a status_error (DFLASH_ERROR_ARG) about what a
// caller gave, or a std::runtime_error.
template <class... Parts> void refuse_if(bool wrong, const Parts &... text) {
    if (wrong) {
        throw status_error(DFLASH_ERROR_ARG, text...);
    }
}
template <class... Parts> void fail_if(bool wrong, const Parts &... text) {
    if (wrong) {
        throw std::runtime_error(concat(text...));
    }
}

// Throws status_error (DFLASH_ERROR_ARG) that names the field if `value` is not in min..max.
void check_range(const char * field, int64_t value, int64_t min, int64_t max);

// Sets this thread's dflash_last_error().
void set_error(const std::string & message) noexcept;

// Only inside a catch block: stores the exception's message as the thread's error and returns its dflash_status.
dflash_status take_exception() noexcept;

// Copies text for the caller, who releases it with dflash_string_free(). Throws std::bad_alloc.
char * dup_string(const std::string & text);

}   // namespace dflash
