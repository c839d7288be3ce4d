// Devices that this machine has not: they know how much memory they would have, and compute nothing. A plan for another
// machine is made with them (plan_scope). Part of ggml-base, whose inner types they are made of.

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
