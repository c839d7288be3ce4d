// One answer of a chat, parsed while it grows.

#pragma once

#include "common/chat.h"

#include <cstdint>
#include <string>
#include <vector>

namespace dflash {

// Text goes in, OpenAI-shaped deltas come out. llama.cpp parses the whole text again each time; what has been sent
// stays sent, so a parse that takes something back waits until it has caught up.
class chat_parser {
  public:
    // The "parser" object of apply_chat() as JSON. Throws std::invalid_argument.
    explicit chat_parser(const std::string & parser);

    // Adds text and returns the JSON array of deltas that it brings. `is_final`: nothing follows.
    std::string push(const std::string & text, bool is_final);
    // The message sent so far, as JSON.
    std::string message() const;

  private:
    struct call {
        std::string id, name, arguments;   // the name is empty until the call has been announced
    };

    void            read(const std::string & text);
    common_chat_msg parse(bool is_final);
    common_chat_msg salvage() const;

    common_chat_parser_params params_;
    bool                      structured_;   // the format holds JSON, which llama.cpp parses recursively
    int32_t                   depth_ = 0;    // brackets open at the end of text_
    std::string               text_;

    std::string       content_, reasoning_;   // sent, an answer's given beginning included
    size_t            content_given_, reasoning_given_;
    std::vector<call> calls_;
};

}   // namespace dflash
