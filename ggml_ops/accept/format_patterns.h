// The trigger patterns of llama.cpp's chat formats.
//
// std::regex takes time and stack without a bound for some patterns, so no other patterns are run: a client could name
// one such as (a|a)*b. What a chat template gave in this process is known; so a request may carry it.

#pragma once

#include <string>

namespace dflash {

// Thread-safe, both.
void remember_format_pattern(const std::string & pattern);
bool is_format_pattern(const std::string & pattern);

}   // namespace dflash
