#include "base/error.h"

#include "dflash.h"

#include <cstdlib>
#include <cstring>
#include <new>

namespace dflash {

static thread_local std::string thread_error;

void check_range(const char * field, int64_t value, int64_t min, int64_t max) {
    refuse_if(value < min || value > max, field, " is ", value, ", must be ", min, "..", max);
}

void set_error(const std::string & message) noexcept {
    try {
        thread_error = message;
    } catch (...) {
        thread_error.clear();   // not even enough memory for the message
    }
}

char * dup_string(const std::string & text) {
    auto * copy = static_cast<char *>(std::malloc(text.size() + 1));
    if (!copy) {
        throw std::bad_alloc();
    }
    std::memcpy(copy, text.c_str(), text.size() + 1);
    return copy;
}

dflash_status take_exception() noexcept {
    try {
        throw;
    } catch (const status_error & e) {
        set_error(e.what());
        return e.status;
    } catch (const std::invalid_argument & e) {
        set_error(e.what());
        return DFLASH_ERROR_ARG;
    } catch (const std::bad_alloc &) {
        set_error("out of memory: use a smaller context, fewer slots or a smaller model");
        return DFLASH_ERROR_MEMORY;
    } catch (const std::exception & e) {
        set_error(e.what());
        return DFLASH_ERROR_INTERNAL;
    } catch (...) {
        set_error("unknown exception");
        return DFLASH_ERROR_INTERNAL;
    }
}

}   // namespace dflash

const char * dflash_last_error(void) { return dflash::thread_error.c_str(); }

void dflash_string_free(char * string) { std::free(string); }
