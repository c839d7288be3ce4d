// Whether the MTP layers of a file can draft, from its header: what llama.cpp's loader leaves out without a word, or
// its graphs of context type MTP assert.

#pragma once

#include "files/gguf_file.h"

#include <string>

namespace dflash {

// Why a file's MTP layers cannot draft, empty if they can.
std::string no_mtp(const gguf_file & file);

}   // namespace dflash
