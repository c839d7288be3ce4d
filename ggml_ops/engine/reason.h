// Why the controller chose as it did; docs/budget.md explains each.

#pragma once

#include <cstddef>

namespace dflash {

enum class reason {
    none_yet,
    off,
    pays,
    fixed,
    no_drafter,
    plain,
    refresh,
    quotes,
    failed,
};

// As users read it.
inline const char * text_of(reason why) {
    static constexpr const char * TEXTS[] = {
        "",
        "drafting is off",
        "drafting pays",
        "fixed budget",
        "no drafter",
        "plain decoding is faster",
        "plain step to measure",
        "prompt lookup alone",
        "the drafter failed",
    };
    return TEXTS[(size_t) why];
}

}   // namespace dflash
