#include "modules/modules.h"

#include "modules/library_path.h"

#include <cstdlib>
#include <string>

namespace dflash {

namespace {

void somewhere_in_this_library() {}

}   // namespace

const char * module_folder() {
    static const std::string folder = [] {
        const std::filesystem::path library = library_path(somewhere_in_this_library);
        return library.has_parent_path() ? (library.parent_path() / "").u8string() : std::string();
    }();
    return folder.empty() ? nullptr : folder.c_str();
}

bool module_is_wanted(const std::filesystem::path & module) {
    const char *      wanted = std::getenv("DFLASH_CPU_VARIANT");
    const std::string name = module.stem().u8string(), cpu = "ggml-cpu-";
    const size_t      at = name.find(cpu);
    return !wanted || !*wanted || at == std::string::npos || name.substr(at + cpu.size()) == wanted;
}

}   // namespace dflash
