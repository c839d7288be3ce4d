#include "api/chat_parser.h"

#include "base/json_fields.h"

#include <random>

namespace dflash {

namespace {

// Levels of JSON in an answer, about 2 KB of stack each. Brackets in strings count: an answer is not JSON as a whole.
constexpr int32_t MAX_OPEN = 256;

std::string new_call_id() {
    static const char            letters[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    thread_local std::mt19937_64 rng{ std::random_device{}() };
    std::string                  id = "call_";
    for (int i = 0; i < 24; ++i) {
        id += letters[rng() % (sizeof(letters) - 1)];
    }
    return id;
}

// What `now` adds to what has been sent: nothing while it takes something back.
std::string grown(const std::string & now, std::string & sent) {
    if (now.size() <= sent.size() || now.compare(0, sent.size(), sent) != 0) {
        return "";
    }
    const std::string added = now.substr(sent.size());
    sent                    = now;
    return added;
}

}   // namespace

chat_parser::chat_parser(const std::string & parser) {
    const json   object = parse_json(parser, "parser");
    field_reader in(object, "parser");
    std::string  arena;
    int32_t      format = 0;
    in.read("format", format, 0, COMMON_CHAT_FORMAT_COUNT - 1);
    in.read("generation_prompt", params_.generation_prompt);
    in.read("continues", params_.is_continuation);
    structured_ = as_bool(in.need("structured"), in.name("structured"));
    in.read("arena", arena);
    in.finish();
    params_.format = common_chat_format(format);
    if (!arena.empty()) {
        try {
            params_.parser.load(arena);
        } catch (const std::exception & e) {
            throw field_error(in.name("arena"), e.what());
        }
    }
    // What the caller wrote of a continued message is in the prompt and is not sent back.
    if (params_.is_continuation) {
        const common_chat_msg given = parse(false);
        content_                    = given.content;
        reasoning_                  = given.reasoning_content;
    }
    content_given_   = content_.size();
    reasoning_given_ = reasoning_.size();
}

// Text past MAX_OPEN brackets is dropped: no format means it, and its parser would overflow the stack.
void chat_parser::read(const std::string & text) {
    for (const char c : text) {
        if (structured_) {
            depth_ += c == '[' || c == '{';
            if (depth_ > MAX_OPEN) {
                return;
            }
            depth_ -= depth_ > 0 && (c == ']' || c == '}');
        }
        text_ += c;
    }
}

common_chat_msg chat_parser::parse(bool is_final) {
    try {
        return common_chat_parse(text_, !is_final, params_);
    } catch (const std::exception &) {
        return is_final ? salvage() : common_chat_msg();   // more text may mend it
    }
}

// An answer that breaks its format reaches the client all the same: what no parser understands is content.
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

std::string chat_parser::push(const std::string & text, bool is_final) {
    read(text);
    const common_chat_msg msg = parse(is_final);

    json       deltas = json::array();
    const auto send   = [&](const char * key, const std::string & added) {
        if (!added.empty()) {
            deltas.push_back({ { key, added } });
        }
    };
    send("reasoning_content", grown(msg.reasoning_content, reasoning_));
    send("content", grown(msg.content, content_));

    for (size_t i = 0; i < msg.tool_calls.size(); ++i) {
        const common_chat_tool_call & now = msg.tool_calls[i];
        if (calls_.size() <= i) {
            calls_.emplace_back();
        }
        call & sent  = calls_[i];
        json   delta = { { "index", i } };
        // Clients append names as they append arguments, so a name is sent once it cannot grow any more.
        const bool announced = !sent.name.empty();
        const bool settled   = is_final || i + 1 < msg.tool_calls.size() || !now.arguments.empty();
        if (!announced) {
            if (!settled || now.name.empty()) {
                continue;
            }
            sent.name     = now.name;
            sent.id       = now.id.empty() ? new_call_id() : now.id;
            delta["id"]   = sent.id;
            delta["type"] = "function";
        }
        const bool  bare  = is_final && now.arguments.empty();   // a call without arguments is still JSON
        std::string added = grown(bare ? "{}" : now.arguments, sent.arguments);
        if (announced && added.empty()) {
            continue;
        }
        json function = json::object();
        if (!announced) {
            function["name"] = sent.name;
        }
        function["arguments"] = added;
        delta["function"]     = function;
        deltas.push_back({ { "tool_calls", json::array({ delta }) } });
    }
    return deltas.dump();
}

std::string chat_parser::message() const {
    const std::string content = content_.substr(content_given_), reasoning = reasoning_.substr(reasoning_given_);
    json              msg   = { { "role", "assistant" } };
    json              calls = json::array();
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
