// One answer of a chat, parsed while it grows.

#pragma once

#include "base/json_fields.h"

#include "common/chat.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace dflash {

// Text goes in, OpenAI-shaped deltas come out. llama.cpp parses its text from the beginning each time; what has been
// sent stays sent, so a parse that takes something back waits until it has caught up.
//
// So that a long answer costs no more for each piece than a short one, the inside of a long field (content, reasoning,
// the arguments of a call) is left out of what is parsed: most of what has been sent of the field that still grows. It
// is left out only if the message that remains lacks exactly these bytes, and taken back as soon as a later one
// contradicts what was sent, or nothing comes for long. The last parse is of the whole text.
class chat_parser {
  public:
    // A field of the message; the arguments of a call have the call's index.
    static constexpr int32_t REASONING = -2, CONTENT = -1;

    // The "parser" object of apply_chat() as JSON. Throws std::invalid_argument.
    explicit chat_parser(const std::string & parser);

    // Adds text and returns the JSON array of deltas that it brings. `is_final`: nothing follows.
    std::string push(const std::string & text, bool is_final);
    // The message sent so far, as JSON.
    std::string message() const;

  private:
    chat_parser(const json & object, const std::string & field);

    struct call {
        std::string id, name, arguments;   // the name is empty until the call has been announced
    };

    // What `short_` lacks of a field: `length` bytes after its first `at`, which stand at `text_at`.
    struct cut {
        int32_t field;
        size_t  text_at, at, length;
    };

    void            read(const std::string & text);
    common_chat_msg parse(bool is_final);
    common_chat_msg parse_open(const std::string & text) const;
    common_chat_msg parse_alone(const std::string & text, bool & fits) const;
    common_chat_msg parse_whole() const;
    common_chat_msg salvage() const;

    std::string   push_content(const std::string & text, bool is_final);
    std::string & sent(int32_t field);
    cut *         find_cut(int32_t field);
    std::string   send(const std::string & now, int32_t field);
    bool          agrees(const common_chat_msg & msg);
    void          shorten(const common_chat_msg & msg);
    bool          leave_out(size_t begin, size_t end, const common_chat_msg & msg);

    common_chat_parser_params params_;
    bool                      structured_;      // the format holds JSON, which llama.cpp parses recursively
    bool                      json_  = false;   // the content is JSON
    int32_t                   depth_ = 0;       // brackets open at the end of text_
    std::string               text_;

    std::string      short_;                  // text_ without the cuts
    std::vector<cut> cuts_;                   // at most one for each field, in the order of the text
    size_t           shorten_at_ = 2048;      // bytes of short_
    int32_t          growing_    = CONTENT;   // the last field that something was sent of
    size_t           n_answered_ = 0;         // bytes of text_ then

    std::string       content_, reasoning_;   // sent, an answer's given beginning included
    size_t            content_given_, reasoning_given_;
    std::vector<call> calls_;

    // Where thoughts shall be a part of the content as well ("deepseek-legacy"): reads the same text, without telling
    // them from the rest, and has the content.
    std::unique_ptr<chat_parser> inline_;
    // Where the answer is a call or JSON: reads the same text as the JSON.
    std::unique_ptr<chat_parser> answer_;
};

}   // namespace dflash
