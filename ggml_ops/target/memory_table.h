// What an engine has allocated, by device.

#pragma once

#include "ggml-backend.h"

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace dflash {

using buffer_bytes = std::map<ggml_backend_buffer_type_t, size_t>;

class memory_table {
  public:
    // `part`: "target", "context", ... (docs/placement.md).
    void add(const std::string & part, const buffer_bytes & bytes);

    struct row {
        std::string                                 device;   // ggml's name; "CPU" is the host, pinned memory too
        std::vector<std::pair<std::string, size_t>> parts;
    };
    // The devices in ggml's order, the host last; those that hold nothing are left out.
    std::vector<row> rows() const;

  private:
    std::map<ggml_backend_dev_t, std::vector<std::pair<std::string, size_t>>> bytes_;   // null: the host
};

}   // namespace dflash
