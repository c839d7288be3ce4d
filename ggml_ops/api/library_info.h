// What the library is, what it can do, and on which devices.

#pragma once

#include "base/json.h"

#include "ggml-backend.h"

#include <string>

namespace dflash {

// The result of dflash_library_info(), as JSON. Backends are loaded.
std::string library_info();

// A device, as that JSON has it.
json describe(ggml_backend_dev_t device);

}   // namespace dflash
