// Stand-ins for devices that this machine does not have: they report a memory size and compute nothing. Used to plan
// for another machine (plan_scope). Part of ggml-base, whose internal types they use.

#pragma once

#include "ggml-backend.h"

#include <stddef.h>
#include <string>

namespace dflash {

// A device with this many bytes of free memory. It supports the same ops and sizes as ggml's CUDA backend on a GPU with
// matrix cores: alignment, padded rows, attention's scratch memory, large products with weights on the host, pipelined
// passes. It is not in ggml's list of devices and exists until the process ends.
GGML_API ggml_backend_dev_t stand_in_device(const std::string & name, size_t memory);

}   // namespace dflash
