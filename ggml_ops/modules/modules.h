// ggml's backends as modules (GGML_BACKEND_DL): they are beside libggml, with one CPU backend per instruction set.

#pragma once

#include <filesystem>

namespace dflash {

// The folder of the library that contains this function, in UTF-8 with a trailing separator; nullptr if unknown.
const char * module_folder();

// Whether a module may be loaded: any, unless DFLASH_CPU_VARIANT names one variant of the CPU backend (e.g. haswell).
bool module_is_wanted(const std::filesystem::path & module);

}   // namespace dflash
