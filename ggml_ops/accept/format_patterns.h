// The trigger patterns of llama.cpp's chat formats.
//
// For some patterns, such as (a|a)*b, std::regex needs unbounded time and stack, so a request may only use patterns
// that a chat template produced in this process.

#pragma once

#include <string>

namespace dflash {

// Both are thread-safe.
void remember_format_pattern(const std::string & pattern);
bool is_format_pattern(const std::string & pattern);

}   // namespace dflash
