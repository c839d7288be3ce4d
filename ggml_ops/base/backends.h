// ggml's backends, either built in or as modules beside the library.

#pragma once

#include "ggml-backend.h"

#include <cstdint>
#include <string>

namespace dflash {

// Call before any device is used: sets up logging and loads backend modules. Throws status_error if no CPU backend is
// available, for instance if DFLASH_CPU_VARIANT names none that this processor can run.
void backends_init();

// The variant of the CPU backend in use ("haswell"); empty if there is only one.
std::string cpu_variant();

// For backends that have threads.
void set_threads(ggml_backend_dev_t device, ggml_backend_t backend, int32_t n_threads);

// The buffer type in which a device multiplies best with weights [k, m] of this type, as llama.cpp's model loader
// chooses it: the first of the device's own layouts that supports the product, else the plain one.
ggml_backend_buffer_type_t best_buffer_type(ggml_backend_buffer_type_t plain, ggml_type type, int64_t k, int64_t m);

}   // namespace dflash
