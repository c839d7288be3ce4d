// File names in UTF-8, which Windows does not expect in strings.

#pragma once

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

}   // namespace dflash
