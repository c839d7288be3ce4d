// Parts of tensors that a saved state needs, read from a device with few calls. A part of llama.cpp's class
// llama_io_write_host has a tensor, the offset and the size of what it needs of it, and `ptr`, where that goes.
// Part of libllama: patches/0036.

#pragma once

#include "ggml-backend.h"
#include "ggml.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace dflash {

// A tree's accepted rows stay where they are on a device, so a text lies there in many runs of cells, and each layer
// has them all. One read may copy so many bytes that nobody needs, besides three for each that is needed: that takes no
// longer than another call.
constexpr size_t MAX_GAPS = 64 << 10;
// Bytes of a read with gaps, which goes through memory of its own.
constexpr size_t MAX_SPAN = 4 << 20;

// The end of the parts from `first` on that one read of their tensor gets, in ascending order of their offsets.
template <class Part> size_t end_of_read(const std::vector<Part> & parts, size_t first) {
    size_t i = first + 1, n_needed = parts[first].size;
    for (; i < parts.size() && parts[i].tensor == parts[first].tensor; ++i) {
        const size_t span = parts[i].offset + parts[i].size - parts[first].offset;
        n_needed += parts[i].size;
        if (parts[i].offset < parts[i - 1].offset + parts[i - 1].size || span > MAX_SPAN ||
            span > MAX_GAPS + 4 * n_needed) {
            break;
        }
    }
    return i;
}

// get(tensor, data, offset, size) copies bytes of a tensor; takes_gaps(tensor): whether fewer calls are faster.
template <class Part, class Get, class TakesGaps>
void read_with_gaps(const std::vector<Part> & parts, Get && get, TakesGaps && takes_gaps) {
    std::vector<uint8_t> span;
    for (size_t i = 0; i < parts.size();) {
        const size_t end = takes_gaps(parts[i].tensor) ? end_of_read(parts, i) : i + 1, begin = parts[i].offset;
        if (end == i + 1) {
            get(parts[i].tensor, parts[i].ptr, begin, parts[i].size);
            ++i;
            continue;
        }
        const size_t size = parts[end - 1].offset + parts[end - 1].size - begin;
        span.resize(std::max(span.size(), size));
        get(parts[i].tensor, span.data(), begin, size);
        for (; i < end; ++i) {
            std::memcpy(parts[i].ptr, span.data() + (parts[i].offset - begin), parts[i].size);
        }
    }
}

// Whether each call takes a while. Of tensors that several devices share only parts without gaps are read.
inline bool is_far(const ggml_tensor * tensor) {
    const ggml_backend_buffer_t buffer = tensor->view_src ? tensor->view_src->buffer : tensor->buffer;
    const ggml_backend_dev_t    device = ggml_backend_buft_get_device(ggml_backend_buffer_get_type(buffer));
    return !ggml_backend_buffer_is_host(buffer) && device &&
           ggml_backend_dev_type(device) != GGML_BACKEND_DEVICE_TYPE_META;
}

template <class Part> void read_parts(const std::vector<Part> & parts) {
    read_with_gaps(parts, ggml_backend_tensor_get, is_far);
}

}   // namespace dflash
