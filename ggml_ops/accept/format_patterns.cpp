#include "accept/format_patterns.h"

#include <mutex>
#include <set>

namespace dflash {

namespace {

std::mutex            lock;
std::set<std::string> known;   // only a few: they do not contain tool names

}   // namespace

void remember_format_pattern(const std::string & pattern) {
    const std::lock_guard<std::mutex> guard(lock);
    known.insert(pattern);
}

bool is_format_pattern(const std::string & pattern) {
    const std::lock_guard<std::mutex> guard(lock);
    return known.count(pattern) > 0;
}

}   // namespace dflash
