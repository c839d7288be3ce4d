// From OpenAI's chat request to a prompt: the JSON side of llama.cpp's common/chat.

#pragma once

#include <string>

struct common_chat_templates;   // llama.cpp common/chat.h

namespace dflash {

// The result of dflash_chat_apply(); body and result are JSON. `templates` may be shared between threads. Throws
// std::invalid_argument, "field 'messages[2].role': ...".
std::string apply_chat(const common_chat_templates * templates, const std::string & body);

}   // namespace dflash
