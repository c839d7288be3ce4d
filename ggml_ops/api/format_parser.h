// Reads the text of an answer in the format of a chat template, with llama.cpp's parser of it.

#pragma once

#include "base/json_fields.h"

#include "common/chat.h"

#include <memory>
#include <string>
#include <vector>

namespace dflash {

// A name alone brings "{". Until more has come, the text may still break the format, and then it is none.
inline bool has_arguments(const common_chat_tool_call & call) { return call.arguments.size() > 1; }

// A text as a message.
struct reading {
    common_chat_msg msg;
    bool            fits = false;   // false: the text breaks the format, which no more text mends, and `msg` is empty
    // Where things are in the generation prompt followed by the text:
    size_t said_end  = 0;   // the end of the content or thoughts, if any, and of the mark that ends the thoughts
    size_t call_at   = 0;   // the last call
    size_t calls_end = 0;   // the end of the last complete call
};

// The beginning of an answer that breaks its format, up to there, and the rest of it, which is content.
struct broken_answer {
    common_chat_msg msg;
    std::string     rest;
    size_t          n_given = 0;   // bytes of `rest` that are in the generation prompt
};

class format_parser {
  public:
    // Takes its fields of the "parser" object of apply_chat(). Throws std::invalid_argument.
    explicit format_parser(field_reader & in);

    bool is_json() const { return json_; }   // the content is JSON
    bool continues() const { return params_.is_continuation; }

    // A text that may go on.
    reading read(const std::string & text) const;
    // A text that has ended: what did not become a mark is text.
    reading read_whole(const std::string & text) const;
    // A text that does not fit, of which the first `n_fitted` bytes most likely do.
    broken_answer read_broken(const std::string & text, size_t n_fitted) const;

  private:
    reading parse(const std::string & text) const;
    void    add_held_back(const std::string & text, reading & found) const;
    bool    has_call_start(const std::string & text, size_t at) const;
    size_t  place_of_rest(const std::string & beginning, reading & begun) const;
    size_t  end_of_calls(const std::string & text) const;
    bool    begins_call(const std::string & input, size_t at) const;
    void    locate(
           const common_peg_parse_context & context, const common_peg_parse_result & result, reading & found) const;
    size_t behind_thoughts(const std::string & input, size_t at) const;

    common_chat_parser_params params_;
    bool                      json_ = false;
    std::vector<std::string>  thinking_end_tags_, call_starts_;
    // If the answer may be a call or JSON: parses it as the JSON.
    std::unique_ptr<format_parser> json_alternative_;
};

}   // namespace dflash
