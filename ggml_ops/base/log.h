// Handles llama.cpp's and ggml's log lines.

#pragma once

#include "dflash.h"

#include <string>

namespace dflash {

// Once per process: replaces the log callbacks of llama, ggml and common. Nothing is printed until dflash_log_set().
void log_init();
void log_set(dflash_log_callback callback, int min_level, void * user);
// While one is alive, its thread's lines with this text (a literal) are not passed on; errors are still kept.
class log_silence {
  public:
    explicit log_silence(const char * text = "");
    ~log_silence();
    log_silence(const log_silence &)             = delete;
    log_silence & operator=(const log_silence &) = delete;

    static bool covers(const char * line);

  private:
    const char *        text_;
    const log_silence * outer_;
};
// The first error line since the last call, without the leading function name: why a load failed. Later lines only
// repeat it.
std::string logged_error();

}   // namespace dflash
