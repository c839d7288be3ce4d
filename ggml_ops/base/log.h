// Where llama.cpp's and ggml's log lines go.

#pragma once

#include "dflash.h"

#include <string>

namespace dflash {

// Once per process: take the log callbacks of llama, ggml and common over. Nothing is printed until dflash_log_set().
void log_init();
void log_set(dflash_log_callback callback, int min_level, void * user);
// While one lives, lines of its thread are not handed on; errors are kept all the same.
class log_silence {
  public:
    log_silence();
    ~log_silence();
    log_silence(const log_silence &)             = delete;
    log_silence & operator=(const log_silence &) = delete;
};
// The first error line since the last call, without the function name in front: why a load failed. Later ones only
// repeat it.
std::string logged_error();

}   // namespace dflash
