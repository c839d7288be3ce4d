// Switches for measurements: environment variables that disable one of our parts (docs/kernels.md).

#pragma once

#include <cstdlib>
#include <cstring>

namespace dflash {

inline bool is_on(const char * name) {
    const char * s = std::getenv(name);
    return !(s && std::strcmp(s, "0") == 0);
}

}   // namespace dflash
