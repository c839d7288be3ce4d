// ggml's backends, either built in or as modules beside the library.

#pragma once

#include <string>

namespace dflash {

// Call before any device is used: sets up logging and loads backend modules. Throws status_error if no CPU backend is
// available, for instance if DFLASH_CPU_VARIANT names none that this processor can run.
void backends_init();

// The variant of the CPU backend in use ("haswell"); empty if there is only one.
std::string cpu_variant();

}   // namespace dflash
