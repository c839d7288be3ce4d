#include "base/abort_guard.h"

#include "ggml.h"

#include <cstdio>
#include <cstring>
#include <exception>
#include <mutex>
#include <stdexcept>

namespace dflash {

namespace {

constexpr int unguarded = -1;

thread_local int current = unguarded;

ggml_abort_callback_t previous = nullptr;

// Called by ggml_abort(), which ends the process when this returns.
void on_abort(const char * message) {
    const bool kernel =
        current == static_cast<int>(abort_guard::phase::pass) && std::strstr(message, "ggml-cpu") != nullptr;
    const bool unwinding = std::uncaught_exceptions() > 0;
    if (current != unguarded && !kernel && !unwinding) {
        throw std::runtime_error(message);
    }
    if (previous != nullptr) {
        previous(message);
    } else {
        std::fprintf(stderr, "%s\n", message);
    }
}

}   // namespace

abort_guard::abort_guard(phase now) : outer_(current) {
    static std::once_flag once;
    std::call_once(once, [] { previous = ggml_set_abort_callback(on_abort); });
    current = static_cast<int>(now);
}

abort_guard::~abort_guard() { current = outer_; }

}   // namespace dflash
