#include "base/abort_guard.h"

#include "base/log.h"

#include "ggml.h"

#include <cstdio>
#include <cstring>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <string>

namespace dflash {

namespace {

thread_local std::optional<abort_guard::phase> current;   // none: unguarded

ggml_abort_callback_t previous = nullptr;

// Called by ggml_abort(), which ends the process when this returns.
void on_abort(const char * message) {
    const bool kernel    = current == abort_guard::phase::pass && std::strstr(message, "ggml-cpu") != nullptr;
    const bool unwinding = std::uncaught_exceptions() > 0;
    if (current && !kernel && !unwinding) {
        // ggml's GPU backends log why, and abort with a line that does not say it.
        const bool        is_logged = std::strstr(message, "CUDA error") != nullptr;
        const std::string why       = is_logged ? logged_error() : "";
        throw std::runtime_error(why.empty() ? message : why);
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
    current = now;
}

abort_guard::~abort_guard() { current = outer_; }

}   // namespace dflash
