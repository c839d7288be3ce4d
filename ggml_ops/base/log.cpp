#include "base/log.h"

#include "llama.h"
#include "common/log.h"

#include <cstring>
#include <mutex>

namespace dflash {

namespace {

std::mutex                       g_mutex;
dflash_log_callback              g_callback  = nullptr;
void *                           g_user      = nullptr;
int                              g_min_level = 3;
int                              g_level     = 1;   // of the current line; continuations have no level
std::string                      g_error;
thread_local const log_silence * t_silence = nullptr;   // the innermost one

// Maps ggml's levels (none 0, debug 1, info 2, warn 3, error 4, cont 5) to ours (debug 0 .. error 3).
void on_log(ggml_log_level level, const char * text, void *) {
    dflash_log_callback callback = nullptr;
    void *              user     = nullptr;
    int                 ours     = 1;
    {
        std::lock_guard<std::mutex> lock(g_mutex);
        if (level != GGML_LOG_LEVEL_CONT) {
            g_level = level == GGML_LOG_LEVEL_NONE ? 1 : (int) level - 1;
        }
        ours = g_level;
        if (ours >= 3 && g_error.empty()) {
            g_error = text;
        }
        if (ours >= g_min_level && !log_silence::covers(text)) {
            callback = g_callback;
            user     = g_user;
        }
    }
    if (callback) {
        callback(ours, text, user);
    }
}

}   // namespace

void log_init() {
    static std::once_flag once;
    std::call_once(once, [] {
        llama_log_set(on_log, nullptr);
        common_log_set_verbosity_thold(-1);   // common/ logs from its own thread and bypasses the callback
    });
}

void log_set(dflash_log_callback callback, int min_level, void * user) {
    log_init();
    std::lock_guard<std::mutex> lock(g_mutex);
    g_callback  = callback;
    g_min_level = min_level;
    g_user      = user;
}

log_silence::log_silence(const char * text) : text_(text), outer_(t_silence) { t_silence = this; }
log_silence::~log_silence() { t_silence = outer_; }

bool log_silence::covers(const char * line) {
    for (const log_silence * silence = t_silence; silence; silence = silence->outer_) {
        if (std::strstr(line, silence->text_)) {
            return true;
        }
    }
    return false;
}

std::string logged_error() {
    std::lock_guard<std::mutex> lock(g_mutex);
    std::string                 text = std::move(g_error);
    g_error.clear();
    const size_t colon = text.find(": ");
    if (colon != std::string::npos && text.find(' ') > colon) {   // "function: message"
        text = text.substr(colon + 2);
    }
    while (!text.empty() && (text.back() == '\n' || text.back() == '.')) {
        text.pop_back();
    }
    return text.empty() ? "no reason was given" : text;
}

}   // namespace dflash
