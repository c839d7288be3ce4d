// A chat template that replaces the model's own: Jinja source, or the name of one of llama.cpp's templates.

#pragma once

#include <string>

namespace dflash {

// Throws field_error if `source` is neither. Called before a model is loaded, so that requests need not check it.
void check_chat_template(const std::string & source);

// Whether `source` names a template that llama.cpp implements in C++ (llama-server's --no-jinja): only for text,
// without tools, reasoning or arguments. "chatml" is not one of them, because llama.cpp has it in Jinja, too.
bool is_builtin_template(const std::string & source);

}   // namespace dflash
