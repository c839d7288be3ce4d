// Stand-ins for devices that this machine does not have: they report a memory size and compute nothing. Used to plan
// for another machine (plan_scope). Part of ggml-base, whose internal types they use.

#pragma once

#include "ggml-backend.h"

#include <stddef.h>
#include <string>

namespace dflash {

// A device with so many bytes of free memory. It supports and sizes what ggml's CUDA backend does on a GPU with matrix
// cores: alignment, padded rows, scratch of attention, large products with weights of the host, passes in a pipeline.
// It is not in ggml's list of devices, and stays for as long as the process.
GGML_API ggml_backend_dev_t stand_in_device(const std::string & name, size_t memory);

}   // namespace dflash
