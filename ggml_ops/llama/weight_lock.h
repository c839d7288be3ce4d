// Keeps in memory what --mlock leaves out: llama.cpp locks weights that are as in the file, and not packed ones, which
// every pass reads.

#pragma once

#include "llama.h"

#include <memory>

namespace dflash {

// Lives as long as its model.
using weight_lock = std::shared_ptr<const void>;

// Locks the model's packed weights on the CPU. Where the system allows less, llama.cpp's warning says so.
LLAMA_API weight_lock access_lock_packed(const llama_model * model);

}   // namespace dflash
