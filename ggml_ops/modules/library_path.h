#pragma once

#include <filesystem>

#ifdef _WIN32
#define WIN32_LEAN_AND_MEAN
#ifndef NOMINMAX
#define NOMINMAX
#endif
#include <windows.h>
#else
#include <dlfcn.h>
#endif

namespace dflash {

// The file of the library that contains this function; empty if unknown.
inline std::filesystem::path library_path(void (*function)()) {
#ifdef _WIN32
    HMODULE      library      = nullptr;
    const DWORD  from_address = GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT;
    std::wstring name(32768, L'\0');   // the maximum length of a path on Windows
    if (!GetModuleHandleExW(from_address, reinterpret_cast<LPCWSTR>(function), &library)) {
        return {};
    }
    name.resize(GetModuleFileNameW(library, name.data(), static_cast<DWORD>(name.size())));
    return name;
#else
    Dl_info info = {};
    return dladdr(reinterpret_cast<void *>(function), &info) && info.dli_fname ? info.dli_fname : "";
#endif
}

}   // namespace dflash
