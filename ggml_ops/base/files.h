// File names in UTF-8, which Windows does not expect in strings.

#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>

namespace dflash {

inline std::filesystem::path file_path(const std::string & utf8) { return std::filesystem::u8path(utf8); }

// Replaces an existing file, which C's rename() does not do on Windows.
inline std::error_code rename_file(const std::string & from, const std::string & to) {
    std::error_code error;
    std::filesystem::rename(file_path(from), file_path(to), error);
    return error;
}

inline void remove_file(const std::string & path) {
    std::error_code ignored;
    std::filesystem::remove(file_path(path), ignored);
}

// Tells whether a file was replaced or written to.
struct file_state {
    std::uintmax_t                  size = 0;
    std::filesystem::file_time_type written;

    // Of no file, too.
    static file_state of(const std::string & path) {
        std::error_code ignored;
        return { std::filesystem::file_size(file_path(path), ignored),
            std::filesystem::last_write_time(file_path(path), ignored) };
    }
    bool is_unknown() const { return size == (std::uintmax_t) -1; }
    bool operator==(const file_state & other) const { return size == other.size && written == other.written; }
};

}   // namespace dflash
