// ggml's backends: part of the build, or modules beside the library.

#pragma once

#include <string>

namespace dflash {

// Before anything asks for a device: logging, and modules where backends are modules. Throws status_error if there is
// no CPU backend then, as where DFLASH_CPU_VARIANT names none that this processor can run.
void backends_init();

// Which of the CPU backend's variants was chosen ("haswell"); empty: there is only one.
std::string cpu_variant();

}   // namespace dflash
