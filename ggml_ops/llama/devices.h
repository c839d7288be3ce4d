// What kind of device it is, and what its backend offers beyond ggml's interface. Inline, since libdflash asks, too.

#pragma once

#include "ggml-backend.h"

#include <cstring>

namespace dflash {

// Also where there is none, as for the CPU's buffers.
inline bool is_cpu(ggml_backend_dev_t device) {
    return !device || ggml_backend_dev_type(device) == GGML_BACKEND_DEVICE_TYPE_CPU;
}

// Whether it is an RPC server's.
inline bool is_rpc(ggml_backend_dev_t device) {
    ggml_backend_reg_t reg = device ? ggml_backend_dev_backend_reg(device) : nullptr;   // a tensor split has none
    return reg && std::strcmp(ggml_backend_reg_name(reg), "RPC") == 0;
}

// Whether it is one device, not those of a tensor split, with memory of its own.
inline bool is_apart(ggml_backend_dev_t device) {
    return device && ggml_backend_dev_type(device) != GGML_BACKEND_DEVICE_TYPE_META &&
           !ggml_backend_buft_is_host(ggml_backend_dev_buffer_type(device));
}

// The device whose memory holds a tensor.
inline ggml_backend_dev_t device_of(const ggml_tensor * tensor) {
    return ggml_backend_buft_get_device(ggml_backend_buffer_get_type(tensor->buffer));
}

// A function of a backend by its name, null: it has none, or there is no device.
template <class F> F * backend_function(ggml_backend_reg_t reg, const char * name) {
    return reg ? (F *) ggml_backend_reg_get_proc_address(reg, name) : nullptr;
}
template <class F> F * backend_function(ggml_backend_dev_t device, const char * name) {
    return device ? backend_function<F>(ggml_backend_dev_backend_reg(device), name) : nullptr;
}

}   // namespace dflash
