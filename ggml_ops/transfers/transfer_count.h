// Counts bytes between host memory and devices. Part of ggml-base: patches/0023 calls it where ggml-backend.cpp moves
// tensors.

#pragma once

#include "ggml.h"

#include <stdint.h>

namespace dflash {

// Bytes since the thread started. A transfer counts for the thread that requested it.
struct transfer_counts {
    int64_t to_device, from_device, between_devices;
};
GGML_API transfer_counts transfers_of_this_thread();

// Data of a tensor was written or read by the host. Tensors in host memory do not count.
void count_set(const ggml_tensor * tensor, size_t bytes);
void count_get(const ggml_tensor * tensor, size_t bytes);
// A whole tensor was copied, if `done`. Returns `done`.
bool count_copy(const ggml_tensor * src, const ggml_tensor * dst, bool done);

}   // namespace dflash
