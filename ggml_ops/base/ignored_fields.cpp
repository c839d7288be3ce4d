#include "base/ignored_fields.h"

#include <algorithm>

namespace dflash {

namespace {

constexpr size_t MAX_NAMES  = 32;
constexpr size_t MAX_LENGTH = 120;

// Without indices, and safe for a header whatever a client calls its fields.
std::string shown(const std::string & path) {
    std::string name;
    bool        inside = false;
    for (const char c : path) {
        if (inside && c >= '0' && c <= '9') {
            continue;
        }
        inside = c == '[';
        name += c > ' ' && c < 127 && c != ',' ? c : '?';
    }
    return name.size() > MAX_LENGTH ? name.substr(0, MAX_LENGTH) + "..." : name;
}

}   // namespace

void ignored_fields::add(const std::string & path) {
    const std::string name = names_.size() < MAX_NAMES ? shown(path) : "...";
    if (std::find(names_.begin(), names_.end(), name) == names_.end()) {
        names_.push_back(name);
    }
}

void ignored_fields::add(const std::vector<std::string> & paths) {
    for (const std::string & path : paths) {
        add(path);
    }
}

void ignored_fields::add_untaken(const field_reader & in, const std::set<std::string> & harmless) {
    for (const std::string & path : in.untaken()) {
        if (!harmless.count(path.substr(path.rfind('.') + 1))) {
            add(path);
        }
    }
}

}   // namespace dflash
