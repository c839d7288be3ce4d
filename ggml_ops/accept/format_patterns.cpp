#include "accept/format_patterns.h"

#include <mutex>
#include <set>

namespace dflash {

namespace {

struct pattern_set {
    std::mutex            lock;
    std::set<std::string> patterns;   // only a few: they do not contain tool names
};

pattern_set & known() {
    static pattern_set all;
    return all;
}

}   // namespace

void remember_format_pattern(const std::string & pattern) {
    const std::lock_guard<std::mutex> guard(known().lock);
    known().patterns.insert(pattern);
}

bool is_format_pattern(const std::string & pattern) {
    const std::lock_guard<std::mutex> guard(known().lock);
    return known().patterns.count(pattern) > 0;
}

}   // namespace dflash
