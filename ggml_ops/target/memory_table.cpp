#include "target/memory_table.h"

#include "llama/devices.h"

#include <algorithm>

namespace dflash {

void memory_table::add(const std::string & part, const buffer_bytes & bytes) {
    for (const auto & [type, size] : bytes) {
        ggml_backend_dev_t device  = ggml_backend_buft_get_device(type);
        const bool         on_host = ggml_backend_buft_is_host(type) || is_cpu(device);
        auto &             parts   = bytes_[on_host ? nullptr : device];
        const auto         found =
            std::find_if(parts.begin(), parts.end(), [&](const auto & other) { return other.first == part; });
        if (found != parts.end()) {
            found->second += size;
        } else if (size > 0) {
            parts.emplace_back(part, size);
        }
    }
}

std::vector<memory_table::row> memory_table::rows() const {
    std::vector<row> rows;
    const auto       add_row = [&](const char * name, ggml_backend_dev_t device) {
        if (const auto found = bytes_.find(device); found != bytes_.end() && !found->second.empty()) {
            rows.push_back({ name, found->second });
        }
    };
    std::vector<ggml_backend_dev_t> listed;
    for (size_t i = 0; i < ggml_backend_dev_count(); ++i) {
        listed.push_back(ggml_backend_dev_get(i));
    }
    for (const auto & [device, parts] : bytes_) {   // that of a tensor split, and those of a plan for another machine
        if (device && std::find(listed.begin(), listed.end(), device) == listed.end()) {
            add_row(ggml_backend_dev_name(device), device);
        }
    }
    std::sort(rows.begin(), rows.end(), [](const row & a, const row & b) { return a.device < b.device; });
    for (ggml_backend_dev_t device : listed) {
        add_row(ggml_backend_dev_name(device), device);
    }
    add_row("CPU", nullptr);
    return rows;
}

}   // namespace dflash
