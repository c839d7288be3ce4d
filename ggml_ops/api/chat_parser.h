// Parses one chat answer incrementally.

#pragma once

#include "api/format_parser.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace dflash {

// Takes text and returns OpenAI-shaped deltas. llama.cpp parses the text from the beginning each time. What was sent
// stays sent, so if a parse takes something back, nothing is sent until a later parse has caught up.
//
// To keep the cost per piece constant in long answers, most of the already sent inside of a long field (content,
// reasoning, arguments of a call) is left out of the parsed text. It is left out only if the resulting message lacks
// exactly these bytes. It is restored if a later message contradicts what was sent, or if nothing is sent for long. The
// last parse covers the whole text. Where nothing can be left out, a parse waits until the text has grown by a part of
// itself.
//
// A text that breaks its format still reaches the client: what no parser understands is content.
class chat_parser {
  public:
    // A field of the message; the arguments of a call are identified by the call's index.
    static constexpr int32_t REASONING = -2, CONTENT = -1;

    // The "parser" object of apply_chat() as JSON. Throws std::invalid_argument.
    explicit chat_parser(const std::string & parser);

    // Adds text and returns the resulting deltas as a JSON array. `is_final`: no more text follows.
    std::string push(const std::string & text, bool is_final);
    // The message sent so far, as JSON.
    std::string message() const;

  private:
    static constexpr size_t INTERVAL = 2048;   // bytes of new text between two attempts to leave something out

    chat_parser(const json & object, const std::string & field);
    explicit chat_parser(field_reader && in);

    struct call {
        std::string id, name, arguments;   // the name is empty until the call is announced
    };

    // What `short_` lacks of a field: `length` bytes after its first `at`, found at `text_at`.
    struct cut {
        int32_t field;
        size_t  text_at, at, length;
    };

    common_chat_msg parse(bool is_final);
    reading         read_shortened();
    bool            may_wait() const;
    void            note_given(const broken_answer & broken);
    void            forget_sent(broken_answer & broken);

    json          push_call(const common_chat_tool_call & now, size_t index, bool settled, bool is_final);
    std::string   push_content(const std::string & text, bool is_final);
    std::string & sent(int32_t field);
    cut *         find_cut(int32_t field);
    std::string   send(const std::string & now, int32_t field);
    bool          agrees(const common_chat_msg & msg);
    void          shorten(const common_chat_msg & msg);
    bool          leave_out(size_t begin, size_t end, const common_chat_msg & msg);

    format_parser                format_;
    std::string                  text_;
    std::optional<broken_answer> broken_;   // without what was sent of the content

    std::string      short_;                  // text_ without the cuts
    std::vector<cut> cuts_;                   // at most one per field, in text order
    size_t           shorten_at_ = 2048;      // size of short_ for the next attempt
    int32_t          growing_    = CONTENT;   // the last field with new output
    size_t           n_answered_ = 0;         // size of text_ at that time
    size_t           n_parsed_   = 0;         // size of short_ at the last parse

    std::string       content_, reasoning_;   // sent so far, including a given beginning of the answer
    size_t            content_given_, reasoning_given_;
    std::vector<call> calls_;

    // For "deepseek-legacy", where thoughts are part of the content too: parses the same text without separating
    // thoughts, and gives the content.
    std::unique_ptr<chat_parser> with_thoughts_;
};

}   // namespace dflash
