#include "api/chat_parser.h"

#include "common/chat-peg-parser.h"

#include <algorithm>
#include <cctype>
#include <random>

namespace dflash {

namespace {

std::string new_call_id() {
    static const char            letters[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    thread_local std::mt19937_64 rng{ std::random_device{}() };
    std::string                  id = "call_";
    for (int i = 0; i < 24; ++i) {
        id += letters[rng() % (sizeof(letters) - 1)];
    }
    return id;
}

// ---- what may be left out ----

constexpr size_t KEPT     = 512;    // bytes kept at the end: longer than any mark of a format
constexpr size_t WORTH    = 1024;   // bytes; below that, parsing twice costs more
constexpr size_t INTERVAL = 2048;   // bytes of new text between two attempts

// Null if the call does not exist.
template <class Message> auto field_of(Message & msg, int32_t field) -> decltype(&msg.content) {
    if (field < 0) {
        return field == chat_parser::CONTENT ? &msg.content : &msg.reasoning_content;
    }
    return size_t(field) < msg.tool_calls.size() ? &msg.tool_calls[field].arguments : nullptr;
}

// Whether the text may be cut here: at a character boundary, outside of escape sequences and not next to a mark.
bool is_quiet(const std::string & text, size_t at) {
    constexpr size_t AROUND = 6;
    if (at < AROUND || at >= text.size() || (text[at] & 0xC0) == 0x80) {
        return false;
    }
    return std::all_of(text.begin() + (at - AROUND), text.begin() + at + 1,
        [](char c) { return std::isalnum((unsigned char) c) || c == ' ' || (c & 0x80); });
}

// Counts JSON's quotation marks in text[begin, end); `begin` is outside of an escape sequence.
size_t count_quotes(const std::string & text, size_t begin, size_t end) {
    size_t n = 0;
    for (size_t i = begin; i < end; ++i) {
        n += text[i] == '"';
        i += text[i] == '\\';
    }
    return n;
}

// Whether the messages are equal except for one field, which both have.
bool same_apart_from(int32_t field, common_chat_msg a, common_chat_msg b) {
    field_of(a, field)->clear();
    field_of(b, field)->clear();
    for (common_chat_msg * msg : { &a, &b }) {
        for (common_chat_tool_call & call : msg->tool_calls) {
            call.id.clear();   // some formats generate one
        }
    }
    return a == b;
}

}   // namespace

chat_parser::chat_parser(const std::string & parser) : chat_parser(parse_json(parser, "parser"), "parser") {}

chat_parser::chat_parser(const json & object, const std::string & field) {
    field_reader in(object, field);
    std::string  arena;
    const auto   format = as_integer(in.need("format"), in.name("format"), 0, COMMON_CHAT_FORMAT_COUNT - 1);
    in.read("generation_prompt", params_.generation_prompt);
    in.read("continues", params_.is_continuation);
    in.read("json", json_);
    in.read("arena", arena);
    if (const json * other = in.take("answer")) {
        answer_.reset(new chat_parser(*other, in.name("answer")));
    }
    if (const json * other = in.take("inline")) {
        inline_.reset(new chat_parser(*other, in.name("inline")));
    }
    in.finish();
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
    // The caller's part of a continued message is in the prompt and is not sent back.
    if (params_.is_continuation) {
        const common_chat_msg given = parse(false);
        content_                    = given.content;
        reasoning_                  = given.reasoning_content;
    }
    content_given_   = content_.size();
    reasoning_given_ = reasoning_.size();
}

void chat_parser::read(const std::string & text) {
    if (answer_) {
        answer_->read(text);
    }
    text_ += text;
    short_ += text;
}

common_chat_msg chat_parser::parse(bool is_final) {
    if (is_final) {
        cuts_.clear();
        return parse_whole();
    }
    common_chat_msg msg   = parse_open(short_);
    const bool      stuck = text_.size() > n_answered_ + INTERVAL;
    if (!cuts_.empty() && (stuck || !agrees(msg))) {
        cuts_.clear();
        short_      = text_;
        shorten_at_ = 2 * short_.size();
        msg         = parse_open(short_);
    }
    return msg;
}

common_chat_msg chat_parser::parse_whole() const {
    try {
        const common_chat_msg msg = common_chat_parse(text_, false, params_);
        if (!answer_ || !msg.tool_calls.empty()) {
            return msg;
        }
    } catch (const std::exception &) {
        if (!answer_ || !parse_open(text_).tool_calls.empty()) {
            return salvage();
        }
    }
    return answer_->parse_whole();
}

// If the answer may be a call or JSON, it is parsed as a call until that fails. Text before a call is parsed as the
// JSON, if possible.
common_chat_msg chat_parser::parse_open(const std::string & text) const {
    bool            fits = false;
    common_chat_msg msg  = parse_alone(text, fits);
    if (!answer_ || !msg.tool_calls.empty() || (fits && msg.content.empty())) {
        return msg;
    }
    bool                  answers = false;
    const common_chat_msg other   = answer_->parse_alone(text, answers);
    return answers || !fits ? other : msg;
}

// Like common_chat_parse() on partial text, which copies the parser: with 200 tools that takes longer than parsing.
common_chat_msg chat_parser::parse_alone(const std::string & text, bool & fits) const {
    common_chat_msg msg;
    msg.role = "assistant";
    try {
        common_peg_parse_context      context(params_.generation_prompt + text, COMMON_PEG_PARSE_FLAG_LENIENT);
        const common_peg_parse_result result = params_.parser.parse(context);
        fits                                 = !result.fail();
        if (result.fail() && result.end == 0) {
            return msg;   // more text may fix it
        }
        switch (params_.format) {
            case COMMON_CHAT_FORMAT_PEG_GEMMA4: common_chat_peg_gemma4_mapper(msg).from_ast(context.ast, result); break;
            case COMMON_CHAT_FORMAT_PEG_MINIMAX_M3:
                common_chat_peg_minimax_m3_mapper(msg).from_ast(context.ast, result);
                break;
            default: common_chat_peg_mapper(msg).from_ast(context.ast, result);
        }
        return msg;
    } catch (const std::exception &) {
        return {};
    }
}

// An answer that breaks its format still reaches the client: text that no parser understands is content.
common_chat_msg chat_parser::salvage() const {
    common_chat_msg msg;
    try {
        msg = common_chat_parse(text_, true, params_);
    } catch (const std::exception &) {
        msg.content = content_.substr(0, content_given_);
    }
    if (msg.tool_calls.empty()) {
        const std::string & last  = msg.content.size() > content_given_ ? msg.content : msg.reasoning_content;
        const size_t        given = msg.content.size() > content_given_ ? content_given_ : reasoning_given_;
        const std::string   own   = last.size() > given ? last.substr(given) : "";
        const size_t        at    = text_.find(own);
        msg.content += at == std::string::npos ? "" : text_.substr(at + own.size());
    }
    return msg;
}

// ---- fields ----

std::string & chat_parser::sent(int32_t field) {
    return field == REASONING ? reasoning_ : field == CONTENT ? content_ : calls_[field].arguments;
}

chat_parser::cut * chat_parser::find_cut(int32_t field) {
    const auto found = std::find_if(cuts_.begin(), cuts_.end(), [&](const cut & c) { return c.field == field; });
    return found == cuts_.end() ? nullptr : &*found;
}

// What `now` adds to what was sent: nothing if it takes something back.
std::string chat_parser::send(const std::string & now, int32_t field) {
    std::string & before = sent(field);
    const cut *   c      = find_cut(field);
    const size_t  at = c ? c->at : 0, length = c ? c->length : 0, n_before = before.size() - length;
    if (now.size() <= n_before || now.compare(0, at, before, 0, at) != 0 ||
        now.compare(at, n_before - at, before, at + length, n_before - at) != 0) {
        return "";
    }
    std::string added = now.substr(n_before);
    before += added;
    growing_    = field;
    n_answered_ = text_.size();
    return added;
}

// Whether the message is consistent with what was sent, apart from the cuts.
bool chat_parser::agrees(const common_chat_msg & msg) {
    return std::all_of(cuts_.begin(), cuts_.end(), [&](const cut & c) {
        const std::string * now = field_of(msg, c.field);
        if (!now || now->size() < c.at) {
            return false;
        }
        const std::string & before = sent(c.field);
        const size_t        n      = std::min(now->size(), before.size() - c.length) - c.at;
        return now->compare(0, c.at, before, 0, c.at) == 0 && now->compare(c.at, n, before, c.at + c.length, n) == 0;
    });
}

void chat_parser::shorten(const common_chat_msg & msg) {
    const std::string * field = field_of(msg, growing_);
    if (short_.size() < shorten_at_ || !field) {
        return;
    }
    shorten_at_ = 2 * short_.size();   // if this attempt fails
    size_t end  = short_.size() - std::min(KEPT, short_.size());
    while (end > 0 && !is_quiet(short_, end)) {
        --end;
    }
    if (const cut * c = find_cut(growing_)) {
        leave_out(c->text_at, end, msg);
        return;
    }
    // The field's position in the text is unknown, since either may be escaped.
    for (size_t n = field->size(); n > KEPT + WORTH; n -= n / 8) {
        size_t begin = short_.size() - std::min(n, short_.size());
        while (begin < end && !is_quiet(short_, begin)) {
            ++begin;
        }
        if (leave_out(begin, end, msg)) {
            return;
        }
    }
}

// Leaves out short_[begin, end) if it holds only bytes of the growing field that were already sent.
bool chat_parser::leave_out(size_t begin, size_t end, const common_chat_msg & msg) {
    if (end < begin + WORTH) {
        return false;
    }
    const std::string     text  = short_.substr(0, begin) + short_.substr(end);
    const common_chat_msg rest  = parse_open(text);
    const std::string *   whole = field_of(msg, growing_);
    const std::string *   left  = field_of(rest, growing_);
    if (!left || left->size() >= whole->size() || !same_apart_from(growing_, msg, rest)) {
        return false;
    }
    cut *        c      = find_cut(growing_);
    const size_t length = whole->size() - left->size();
    const size_t at =
        c ? c->at : size_t(std::mismatch(left->begin(), left->end(), whole->begin()).first - left->begin());
    if (left->size() < at || left->compare(0, at, *whole, 0, at) != 0 ||
        left->compare(at, std::string::npos, *whole, at + length, std::string::npos) != 0) {
        return false;
    }
    // In JSON, the part left out must lie within one string.
    if ((growing_ >= 0 || (growing_ == CONTENT && json_)) &&
        ((at > 0 && (*whole)[at - 1] == '\\') || count_quotes(*whole, 0, at) % 2 == 0 ||
            count_quotes(*whole, at, at + length) > 0)) {
        return false;
    }
    if (at + length + (c ? c->length : 0) > sent(growing_).size()) {
        return false;
    }
    if (c) {
        c->length += length;
    } else {
        cuts_.push_back({ growing_, begin, at, length });
    }
    short_      = text;
    shorten_at_ = short_.size() + INTERVAL;
    return true;
}

// ---- deltas ----

std::string chat_parser::push(const std::string & text, bool is_final) {
    read(text);
    const common_chat_msg msg = parse(is_final);

    json       deltas = json::array();
    const auto add    = [&](const char * key, const std::string & added) {
        if (!added.empty()) {
            deltas.push_back({ { key, added } });
        }
    };
    add("reasoning_content", send(msg.reasoning_content, REASONING));
    const std::string content = send(msg.content, CONTENT);
    add("content", inline_ ? inline_->push_content(text, is_final) : content);

    for (size_t i = 0; i < msg.tool_calls.size(); ++i) {
        const common_chat_tool_call & now     = msg.tool_calls[i];
        const bool                    settled = is_final || i + 1 < msg.tool_calls.size() || !now.arguments.empty();
        const json                    delta   = push_call(now, i, settled, is_final);
        if (!delta.is_null()) {
            deltas.push_back({ { "tool_calls", json::array({ delta }) } });
        }
    }
    if (!is_final) {
        shorten(msg);
    }
    return deltas.dump();
}

// Clients append to names as they do to arguments, so a name is sent only when it is complete (`settled`).
json chat_parser::push_call(const common_chat_tool_call & now, size_t index, bool settled, bool is_final) {
    if (calls_.size() <= index) {
        calls_.emplace_back();
    }
    call &     sent      = calls_[index];
    json       delta     = { { "index", index } };
    const bool announced = !sent.name.empty();
    if (!announced) {
        if (!settled || now.name.empty()) {
            return nullptr;
        }
        sent.name     = now.name;
        sent.id       = now.id.empty() ? new_call_id() : now.id;
        delta["id"]   = sent.id;
        delta["type"] = "function";
    }
    const bool        bare  = is_final && now.arguments.empty();   // arguments of a call without any are still JSON
    const std::string added = send(bare ? "{}" : now.arguments, int32_t(index));
    if (announced && added.empty()) {
        return nullptr;
    }
    json function = json::object();
    if (!announced) {
        function["name"] = sent.name;
    }
    function["arguments"] = added;
    delta["function"]     = function;
    return delta;
}

std::string chat_parser::push_content(const std::string & text, bool is_final) {
    const size_t before = content_.size();
    push(text, is_final);
    return content_.substr(before);
}

std::string chat_parser::message() const {
    const chat_parser & shown     = inline_ ? *inline_ : *this;
    const std::string   content   = shown.content_.substr(shown.content_given_);
    const std::string   reasoning = reasoning_.substr(reasoning_given_);
    json                msg       = { { "role", "assistant" } };
    json                calls     = json::array();
    for (const call & c : calls_) {
        if (!c.name.empty()) {
            calls.push_back({ { "id", c.id }, { "type", "function" },
                { "function", { { "name", c.name }, { "arguments", c.arguments } } } });
        }
    }
    msg["content"] = content;
    if (content.empty() && !calls.empty()) {
        msg["content"] = nullptr;
    }
    if (!reasoning.empty()) {
        msg["reasoning_content"] = reasoning;
    }
    if (!calls.empty()) {
        msg["tool_calls"] = calls;
    }
    return msg.dump();
}

}   // namespace dflash
