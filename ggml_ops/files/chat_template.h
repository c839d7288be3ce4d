// A chat template that a user gives in place of the model's own: Jinja source, or the name of one of llama.cpp's.

#pragma once

#include <string>
#include <vector>

namespace dflash {

// Throws field_error if `source` is neither: before a model is loaded, and not for each request.
void check_chat_template(const std::string & source);

// Whether `source` names a template that llama.cpp has in C++ (llama-server's --no-jinja): for text only, without
// tools, thoughts or arguments. "chatml" is not one of them: that it has as Jinja, too.
bool is_builtin_template(const std::string & source);

}   // namespace dflash
