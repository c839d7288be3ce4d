// The local time, for chat templates that print the date. std::localtime() has one result for all threads, and requests
// are rendered on several at once.

#pragma once

#include <ctime>

namespace dflash {

inline std::tm local_time(std::time_t time) {
    std::tm local = {};
#ifdef _WIN32
    localtime_s(&local, &time);
#else
    localtime_r(&time, &local);
#endif
    return local;
}

}   // namespace dflash
