// Texts of messages and parameters.

#pragma once

#include <string>
#include <type_traits>

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

}   // namespace dflash
