#pragma once
// Where ggml's backends are modules (GGML_BACKEND_DL), these are beside libggml, and the CPU backend is there once for
// each set of instructions.

#include <filesystem>

namespace dflash {

/// The folder of the library that this function is in, as UTF-8 with a separator at its end; nullptr: unknown.
const char * module_folder();

/// Whether a module may serve: all may, unless DFLASH_CPU_VARIANT names one of the CPU backend (such as haswell).
bool module_is_wanted(const std::filesystem::path & module);

}   // namespace dflash
