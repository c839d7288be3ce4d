// Shared code for tests with weights.

#pragma once

#include "ggml-backend.h"
#include "ggml-cpu.h"

#include <cstring>
#include <string>
#include <vector>

// The buffer type of packed weights, or null.
inline ggml_backend_buffer_type_t panels() {
    ggml_backend_dev_t device = ggml_backend_reg_dev_get(ggml_backend_cpu_reg(), 0);
    const auto         get    = (ggml_backend_dev_get_extra_bufts_t) ggml_backend_reg_get_proc_address(
        ggml_backend_cpu_reg(), "ggml_backend_dev_get_extra_bufts");
    for (auto types = get(device); *types; ++types) {
        if (std::string(ggml_backend_buft_name(*types)) == "CPU_PANELS") {
            return *types;
        }
    }
    return nullptr;
}

// A matrix [k, m] as weights of a type. Its columns matter alike: some types cannot be quantized without such a row.
inline std::vector<char> quantize(ggml_type type, const std::vector<float> & x, int64_t k, int64_t m) {
    const std::vector<float> importance(k, 1.0f);
    std::vector<char>        out(m * ggml_row_size(type, k));
    ggml_quantize_chunk(type, x.data(), out.data(), 0, m, k, importance.data());
    return out;
}

// Rows of d floats, stored as `type`; x becomes the stored values.
inline std::vector<char> pack(ggml_type type, std::vector<float> & x, int64_t d) {
    const int64_t     rows = (int64_t) x.size() / d;
    std::vector<char> out(rows * ggml_row_size(type, d));
    ggml_quantize_chunk(type, x.data(), out.data(), 0, rows, d, nullptr);
    if (type == GGML_TYPE_F32) {
        std::memcpy(out.data(), x.data(), out.size());
    } else {
        ggml_get_type_traits(type)->to_float(out.data(), x.data(), (int64_t) x.size());
    }
    return out;
}
