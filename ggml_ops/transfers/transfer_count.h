// Counts what travels between the host's memory and that of devices. Part of ggml-base: patches/0023 calls it where
// ggml-backend.cpp hands tensors over.

#pragma once

#include "ggml.h"

#include <stdint.h>

namespace dflash {

// Bytes since the thread's start. What a thread asks for is counted there, whoever carries it out.
struct transfer_counts {
    int64_t to_device, from_device, between_devices;
};
GGML_API transfer_counts transfers_of_this_thread();

// Data of a tensor is written or read from the host's side. Tensors in the host's memory do not count.
void count_set(const ggml_tensor * tensor, size_t bytes);
void count_get(const ggml_tensor * tensor, size_t bytes);
// A tensor was copied as a whole, if `done`, which is returned.
bool count_copy(const ggml_tensor * src, const ggml_tensor * dst, bool done);

}   // namespace dflash
