#include "files/chat_template.h"

#include "base/json_fields.h"
#include "common/chat.h"

#include <algorithm>

namespace dflash {

namespace {

std::vector<const char *> builtin_names() {
    std::vector<const char *> names(size_t(llama_chat_builtin_templates(nullptr, 0)));
    llama_chat_builtin_templates(names.data(), names.size());
    return names;
}

}   // namespace

bool is_builtin_template(const std::string & source) {
    const std::vector<const char *> names = builtin_names();
    return source != "chatml" && std::find(names.begin(), names.end(), source) != names.end();
}

void check_chat_template(const std::string & source) {
    if (source == "chatml" || is_builtin_template(source)) {
        return;
    }
    if (source.find("{{") == std::string::npos && source.find("{%") == std::string::npos) {
        throw field_error("chat_template",
            "is neither Jinja, which has {{ or {%, nor one of llama.cpp's names: ", joined(builtin_names(), ", "));
    }
    try {
        common_chat_template(source, "", "");
    } catch (const std::exception & e) {
        throw field_error("chat_template", "is not a Jinja template that llama.cpp can read: ", e.what());
    }
}

}   // namespace dflash
