// Texts of messages and parameters.

#pragma once

#include <iterator>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

namespace dflash {

// Of a text that a caller may leave out.
inline bool is_set(const char * text) { return text && *text; }

// All parts, one after another: texts, characters, and numbers as std::to_string() writes them.
template <class... Parts> std::string concat(const Parts &... parts) {
    std::string text;
    const auto  append = [&](const auto & part) {
        using type = std::decay_t<decltype(part)>;
        if constexpr (std::is_arithmetic_v<type> && !std::is_same_v<type, char>) {
            text += std::to_string(part);
        } else {
            text += part;
        }
    };
    (append(parts), ...);
    return text;
}

// "a, b or c"; without `last`, `between` stands before the last one, too.
template <class Texts>
std::string joined(const Texts & texts, const std::string & between, const std::string & last = "") {
    std::string all;
    size_t      left = std::size(texts);
    for (const auto & text : texts) {
        all.append(all.empty() ? "" : --left > 1 || last.empty() ? between : last).append(text);
    }
    return all;
}

// The parts of "a,b"; none of null.
inline std::vector<std::string> split(const char * text) {
    std::vector<std::string> parts;
    std::istringstream       in(text ? text : "");
    for (std::string part; std::getline(in, part, ',');) {
        parts.push_back(part);
    }
    return parts;
}

}   // namespace dflash
