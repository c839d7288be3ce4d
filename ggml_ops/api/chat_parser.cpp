#include "api/chat_parser.h"

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

}   // namespace

chat_parser::chat_parser(const std::string & parser) : chat_parser(parse_json(parser, "parser"), "parser") {}

chat_parser::chat_parser(const json & object, const std::string & field) : chat_parser(field_reader(object, field)) {}

chat_parser::chat_parser(field_reader && in) : format_(in) {
    if (const json * other = in.take("inline")) {
        with_thoughts_.reset(new chat_parser(*other, in.name("inline")));
    }
    in.finish();
    // The caller's part of a continued message is in the prompt and is not sent back. Its end may look like the
    // beginning of a mark.
    if (format_.continues()) {
        const common_chat_msg given = format_.read_whole("").msg;
        content_                    = given.content;
        reasoning_                  = given.reasoning_content;
    }
    content_given_   = content_.size();
    reasoning_given_ = reasoning_.size();
}

// ---- messages ----

static common_chat_msg with_rest(const broken_answer & broken) {
    common_chat_msg msg = broken.msg;
    msg.content += broken.rest;
    return msg;
}

common_chat_msg chat_parser::parse(bool is_final) {
    if (broken_) {
        return with_rest(*broken_);
    }
    reading found = is_final ? format_.read_whole(text_) : read_shortened();
    if (is_final || !found.fits) {
        cuts_.clear();
    }
    if (found.fits) {
        return std::move(found.msg);
    }
    const broken_answer & broken = broken_.emplace(format_.read_broken(text_, n_answered_));
    note_given(broken);
    return with_rest(broken);
}

// The text without the cuts, if that fits and agrees with what was sent, else the whole text.
reading chat_parser::read_shortened() {
    reading    found = format_.read(short_);
    const bool stuck = text_.size() > n_answered_ + INTERVAL;
    if (cuts_.empty() || (found.fits && !stuck && agrees(found.msg))) {
        return found;
    }
    cuts_.clear();
    short_      = text_;
    shorten_at_ = 2 * short_.size();
    return format_.read(short_);
}

// Whether so little is new that parsing can wait. To parse at each piece what has no cut would be quadratic.
bool chat_parser::may_wait() const {
    constexpr size_t LONG = 8192, PATIENCE = 256;
    return !broken_ && cuts_.empty() && short_.size() > LONG && (short_.size() - n_parsed_) * PATIENCE < short_.size();
}

// The rest may begin in the prompt, where what the caller gave looked like the beginning of a call.
void chat_parser::note_given(const broken_answer & broken) {
    const std::string given = broken.msg.content + broken.rest.substr(0, broken.n_given);
    if (broken.n_given > 0 && content_.size() == content_given_ && given.size() > content_given_) {
        content_       = given;
        content_given_ = given.size();
    }
}

// Nothing takes back what was sent of a broken answer, so only its calls and thoughts are compared with it again.
void chat_parser::forget_sent(broken_answer & broken) {
    broken.msg.content.clear();
    broken.rest.clear();
    cuts_ = { { CONTENT, 0, 0, content_.size() } };
}

// ---- fields ----

std::string & chat_parser::sent(int32_t field) {
    return field == REASONING ? reasoning_ : field == CONTENT ? content_ : calls_[field].arguments;
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

// ---- deltas ----

std::string chat_parser::push(const std::string & text, bool is_final) {
    text_ += text;
    (broken_ ? broken_->rest : short_) += text;
    const bool            waits = !is_final && !text.empty() && may_wait();
    const common_chat_msg msg   = waits ? common_chat_msg() : parse(is_final);

    json       deltas = json::array();
    const auto add    = [&](const char * key, const std::string & added) {
        if (!added.empty()) {
            deltas.push_back({ { key, added } });
        }
    };
    add("reasoning_content", send(msg.reasoning_content, REASONING));
    const std::string content = send(msg.content, CONTENT);
    add("content", with_thoughts_ ? with_thoughts_->push_content(text, is_final) : content);

    for (size_t i = 0; i < msg.tool_calls.size(); ++i) {
        const common_chat_tool_call & now     = msg.tool_calls[i];
        const bool                    settled = is_final || i + 1 < msg.tool_calls.size() || has_arguments(now);
        const json                    delta   = push_call(now, i, settled, is_final);
        if (!delta.is_null()) {
            deltas.push_back({ { "tool_calls", json::array({ delta }) } });
        }
    }
    if (broken_) {
        forget_sent(*broken_);
    } else if (!is_final && !waits) {
        shorten(msg);
        n_parsed_ = short_.size();
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
    const chat_parser & shown     = with_thoughts_ ? *with_thoughts_ : *this;
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
