#include "api/format_parser.h"

#include "common/chat-peg-parser.h"

#include <algorithm>
#include <cctype>

namespace dflash {

namespace {

size_t behind_blanks(const std::string & text, size_t at) {
    while (at < text.size() && std::isspace((unsigned char) text[at])) {
        ++at;
    }
    return at;
}

bool begins_with(const std::string & text, const std::string & beginning) {
    return text.compare(0, beginning.size(), beginning) == 0;
}

bool stands_at(const std::string & text, size_t at, const std::string & word) {
    return !word.empty() && text.compare(at, word.size(), word) == 0;
}

std::vector<std::string> read_words(field_reader & in, const char * key) {
    std::vector<std::string> words;
    in.read_each(key, [&](const json & value, const std::string & name) { words.push_back(as_string(value, name)); });
    return words;
}

common_chat_msg message_of(
    common_chat_format format, const common_peg_ast_arena & nodes, const common_peg_parse_result & result) {
    common_chat_msg msg;
    msg.role = "assistant";
    switch (format) {
        case COMMON_CHAT_FORMAT_PEG_GEMMA4: common_chat_peg_gemma4_mapper(msg).from_ast(nodes, result); break;
        case COMMON_CHAT_FORMAT_PEG_MINIMAX_M3: common_chat_peg_minimax_m3_mapper(msg).from_ast(nodes, result); break;
        default: common_chat_peg_mapper(msg).from_ast(nodes, result);
    }
    return msg;
}

}   // namespace

format_parser::format_parser(field_reader & in) {
    std::string arena;
    const auto  format = as_integer(in.need("format"), in.name("format"), 0, COMMON_CHAT_FORMAT_COUNT - 1);
    in.read("generation_prompt", params_.generation_prompt);
    in.read("continues", params_.is_continuation);
    in.read("json", json_);
    in.read("arena", arena);
    thinking_end_tags_ = read_words(in, "thinking_end_tags");
    call_starts_       = read_words(in, "call_starts");
    if (const json * other = in.take("answer")) {
        field_reader alternative(*other, in.name("answer"));
        json_alternative_.reset(new format_parser(alternative));
        alternative.finish();
    }
    params_.format = common_chat_format(format);
    if (!arena.empty()) {
        try {
            params_.parser.load(arena);
        } catch (const std::exception & e) {
            throw field_error(in.name("arena"), e.what());
        }
    }
    if (params_.parser.empty()) {
        params_.parser =
            build_chat_peg_parser([](common_chat_peg_builder & p) { return p.content(p.rest()) + p.end(); });
    }
}

// ---- texts that fit ----

// Like common_chat_parse(), which copies the parser: with 200 tools that takes longer than parsing.
reading format_parser::parse(const std::string & text) const {
    reading found;
    try {
        common_peg_parse_context      context(params_.generation_prompt + text, COMMON_PEG_PARSE_FLAG_LENIENT);
        const common_peg_parse_result result = params_.parser.parse(context);
        if (result.fail() || (result.success() && begins_call(context.input, result.end))) {
            return found;
        }
        found.msg  = message_of(params_.format, context.ast, result);
        found.fits = true;
        locate(context, result, found);
        return found;
    } catch (const std::exception &) {
        return {};
    }
}

// A few formats' parsers end before a call that they do not understand, as if the answer had ended there.
bool format_parser::begins_call(const std::string & input, size_t at) const {
    at = behind_blanks(input, at);
    return std::any_of(call_starts_.begin(), call_starts_.end(),
        [&](const std::string & start) { return stands_at(input, at, start); });
}

// If the answer may be a call or JSON, it is parsed as a call until that fails. Text before a call is parsed as the
// JSON, if possible.
reading format_parser::read(const std::string & text) const {
    reading call = parse(text);
    if (!json_alternative_ || !call.msg.tool_calls.empty() || (call.fits && call.msg.content.empty())) {
        return call;
    }
    reading other = json_alternative_->parse(text);
    return other.fits || !call.fits ? other : call;
}

// Whether a call begins behind there: a few formats take one that is cut for text.
bool format_parser::has_call_start(const std::string & text, size_t at) const {
    const std::string rest = (params_.generation_prompt + text).substr(at);
    return std::any_of(call_starts_.begin(), call_starts_.end(),
        [&](const std::string & start) { return !start.empty() && rest.find(start) != std::string::npos; });
}

reading format_parser::read_whole(const std::string & text) const {
    reading found = parse(text);
    if (json_alternative_) {
        return found.msg.tool_calls.empty() ? json_alternative_->read_whole(text) : found;
    }
    if (!found.fits || !found.msg.tool_calls.empty()) {
        return found;
    }
    if (found.said_end < params_.generation_prompt.size() + text.size()) {
        add_held_back(text, found);
    }
    return found;
}

// llama.cpp's parsers hold back what could become a mark, at the end of an answer too. So they are given a character
// that no mark has. If that is content or thoughts, what was held back is too.
void format_parser::add_held_back(const std::string & text, reading & found) const {
    constexpr char END   = '\x01';
    reading        ended = parse(text + END);
    std::string &  last  = ended.msg.content.empty() ? ended.msg.reasoning_content : ended.msg.content;
    if (!ended.msg.tool_calls.empty() || last.empty() || last.back() != END) {
        return;
    }
    last.pop_back();
    const bool grows = begins_with(ended.msg.content, found.msg.content) &&
                       begins_with(ended.msg.reasoning_content, found.msg.reasoning_content);
    if (grows && !has_call_start(text, found.said_end) && behind_blanks(last, 0) < last.size()) {
        found = std::move(ended);
    }
}

// ---- texts that do not ----

broken_answer format_parser::read_broken(const std::string & text, size_t n_fitted) const {
    reading begun = read(text.substr(0, n_fitted));
    size_t  good = n_fitted, bad = text.size();
    if (!begun.fits && n_fitted > 0) {
        begun = read("");
        good  = 0;
        bad   = n_fitted;
    }
    while (bad - good > 1) {   // a beginning longer than one that does not fit does not fit either
        const size_t middle = good + (bad - good) / 2;
        reading      found  = read(text.substr(0, middle));
        if (found.fits) {
            good  = middle;
            begun = std::move(found);
        } else {
            bad = middle;
        }
    }
    const std::string input = params_.generation_prompt + text;
    size_t            rest  = place_of_rest(text.substr(0, good), begun);
    while (rest < input.size() && (input[rest] & 0xC0) == 0x80) {   // `good` may be within a character
        --rest;
    }
    const size_t n_prompt = params_.generation_prompt.size();
    return { std::move(begun.msg), input.substr(rest), n_prompt - std::min(rest, n_prompt) };
}

// Where the rest begins, in the generation prompt followed by the beginning that fits. Takes a call that has only its
// name out of `begun`.
size_t format_parser::place_of_rest(const std::string & beginning, reading & begun) const {
    auto &     calls   = begun.msg.tool_calls;
    const bool is_open = begun.call_at >= begun.calls_end;
    const bool is_none = !calls.empty() && is_open && !has_arguments(calls.back());
    if (is_none) {
        calls.pop_back();
    }
    if (calls.empty()) {
        return begun.fits ? begun.said_end : params_.generation_prompt.size();
    }
    const size_t end = is_none ? begun.call_at : params_.generation_prompt.size() + beginning.size();
    if (is_open && !is_none) {
        return end;
    }
    const size_t strict = end_of_calls(beginning);
    return strict >= std::max(begun.calls_end, begun.said_end) ? strict : end;
}

// Behind complete calls and their marks: where parsing fails if no more is to come. Earlier if a list of calls is open.
size_t format_parser::end_of_calls(const std::string & text) const {
    try {
        common_peg_parse_context context(params_.generation_prompt + text, COMMON_PEG_PARSE_FLAG_NONE);
        return params_.parser.parse(context).end;
    } catch (const std::exception &) {
        return 0;
    }
}

void format_parser::locate(
    const common_peg_parse_context & context, const common_peg_parse_result & result, reading & found) const {
    found.said_end = params_.generation_prompt.size();
    context.ast.visit(result, [&](const common_peg_ast_node & node) {
        if (node.tag == common_chat_peg_builder::CONTENT) {
            found.said_end = node.end;
        } else if (node.tag == common_chat_peg_builder::REASONING) {
            found.said_end = behind_thoughts(context.input, node.end);
        } else if (node.tag == common_chat_peg_builder::TOOL_OPEN) {
            found.call_at = node.start;
        } else if (node.tag == common_chat_peg_builder::TOOL_CLOSE && !node.is_partial) {
            found.calls_end = node.end;
        }
    });
}

size_t format_parser::behind_thoughts(const std::string & input, size_t at) const {
    const size_t mark = behind_blanks(input, at);
    for (std::string tag : thinking_end_tags_) {
        tag.erase(0, behind_blanks(tag, 0));
        if (stands_at(input, mark, tag) && !begins_call(input, mark)) {   // in a few formats a call ends thoughts
            return behind_blanks(input, mark + tag.size());
        }
    }
    return mark;
}

}   // namespace dflash
