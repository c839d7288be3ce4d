#include "api/chat_messages.h"

#include <algorithm>
#include <vector>

namespace dflash {

field_reader function_of(field_reader & in, const std::string & type) {
    refuse_field_if(type != "function", in.name("type"), "must be \"function\"");
    return { in.need("function"), in.name("function") };
}

namespace {

void read_content(const json & value, const std::string & field, common_chat_msg & msg, ignored_fields & ignored) {
    if (value.is_string()) {
        msg.content = value.get<std::string>();
        return;
    }
    refuse_field_if(!value.is_array(), field, "must be a string or an array of parts");
    each_element(value, field, [&](const json & one, const std::string & name) {
        field_reader      part(one, name);
        const std::string type = part.need_string("type");
        if (type != "text" && type != "refusal" && type != MEDIA_MARKER) {
            // OpenAI's wording, which clients look for
            throw field_error(part.name("type"), "Invalid content type. ", type.substr(0, 40),
                " is only supported by certain models, and not here");
        }
        const bool is_media = type == MEDIA_MARKER;
        msg.content_parts.push_back({ is_media ? type : "text", part.need_string(is_media ? "text" : type) });
        ignored.add_untaken(part, HARMLESS);
    });
    if (msg.role == "tool" || msg.role == "function") {
        msg.content = text_of(msg);   // some templates ignore the parts of a result
        msg.content_parts.clear();
    }
}

// Reads name and arguments.
void read_function(field_reader & in, common_chat_tool_call & call) {
    call.name      = in.need_string("name");
    call.arguments = "{}";
    if (const json * arguments = in.take("arguments")) {
        call.arguments =
            arguments->is_string() ? arguments->get<std::string>() : as_object(*arguments, in.name("arguments")).dump();
        check_nesting(call.arguments, in.name("arguments"));
    }
}

common_chat_tool_call read_call(const json & value, const std::string & field, ignored_fields & ignored) {
    field_reader          in(value, field);
    common_chat_tool_call call;
    std::string           type = "function";
    in.read("type", type);
    in.read("id", call.id);
    field_reader function = function_of(in, type);
    read_function(function, call);
    ignored.add_untaken(function, HARMLESS);
    ignored.add_untaken(in, HARMLESS);
    return call;
}

class message_reader {
  public:
    message_reader(const json & messages, const std::string & field, ignored_fields & ignored) :
        messages_(as_array(messages, field)), field_(field), ignored_(ignored) {}

    chat_messages read() {
        chat_messages read;
        for (size_t i = 0; i < messages_.size(); ++i) {
            read.all.push_back(read_message(messages_.at(i), member(field_, i), i + 1 == messages_.size()));
        }
        refuse_field_if(read.all.empty(), field_, "is empty: at least one message is needed");
        read.prefix = prefix_;
        return read;
    }

  private:
    common_chat_msg read_message(const json & value, const std::string & field, bool is_last) {
        field_reader    in(value, field);
        common_chat_msg msg;
        msg.role             = read_role(in);
        const json * content = in.take("content");
        if (content) {
            read_content(*content, in.name("content"), msg, ignored_);
        }
        read_calls(in, msg);
        read_reasoning(in, msg);
        in.read("name", msg.tool_name);
        in.read("tool_call_id", msg.tool_call_id);
        read_result_of_function(in, msg);
        read_rest(in, msg, is_last);
        // null means an interrupted answer, or a tool without output
        const bool says_nothing = msg.tool_calls.empty() && msg.reasoning_content.empty() && msg.content.empty();
        refuse_field_if(!value.contains("content") && says_nothing, in.name("content"), "is missing");
        ignored_.add_untaken(in, HARMLESS);
        return msg;
    }

    static std::string read_role(field_reader & in) {
        static const std::vector<std::string> roles = { "system", "developer", "user", "assistant", "tool",
            "function" };
        const std::string                     role  = in.need_string("role");
        refuse_field_if(std::find(roles.begin(), roles.end(), role) == roles.end(), in.name("role"),
            "must be system, developer, user, assistant, tool or function, got '", role.substr(0, 40), "'");
        return role;
    }

    // Tool calls, or the single function call of older clients.
    void read_calls(field_reader & in, common_chat_msg & msg) {
        const std::string name = in.name("tool_calls"), old_name = in.name("function_call");
        const json *      calls = in.take("tool_calls");
        const json *      old   = in.take("function_call");
        calls                   = calls && calls->empty() ? nullptr : calls;
        old                     = old && old->empty() ? nullptr : old;
        refuse_field_if(
            (calls || old) && msg.role != "assistant", calls ? name : old_name, "belongs to assistant messages only");
        if (calls) {
            each_element(as_array(*calls, name), name, [&](const json & value, const std::string & field) {
                msg.tool_calls.push_back(read_call(value, field, ignored_));
            });
        }
        if (old) {
            refuse_field_if(!msg.tool_calls.empty(), old_name, "cannot be combined with tool_calls: send those only");
            field_reader          function(*old, old_name);
            common_chat_tool_call call;
            read_function(function, call);
            ignored_.add_untaken(function);
            call.id = last_id_ = function_id(++n_functions_);
            msg.tool_calls.push_back(call);
        }
    }

    // The result of a function call has no id and belongs to the last call.
    void read_result_of_function(const field_reader & in, common_chat_msg & msg) {
        if (msg.role != "function") {
            return;
        }
        refuse_field_if(msg.tool_name.empty(), in.name("name"), "is missing: the result of a function names it");
        msg.role         = "tool";
        msg.tool_call_id = n_functions_ ? last_id_ : function_id(0);
    }

    // Nine letters and digits, as some templates require.
    static std::string function_id(size_t n) {
        const std::string digits = std::to_string(n % 100000);
        return "call" + std::string(5 - digits.size(), '0') + digits;
    }

    // OpenRouter's, vLLM's and Ollama's names for reasoning. Clients send back everything they received.
    void read_reasoning(field_reader & in, common_chat_msg & msg) {
        in.read("reasoning_content", msg.reasoning_content);
        for (const char * other : { "reasoning", "thinking" }) {
            std::string text;
            in.read(other, text);
            if (msg.reasoning_content.empty()) {
                msg.reasoning_content = text;
            } else if (!text.empty() && text != msg.reasoning_content) {
                ignored_.add(in.name(other));
            }
        }
    }

    void read_rest(field_reader & in, common_chat_msg & msg, bool is_last) {
        std::string refusal;
        in.read("refusal", refusal);
        if (msg.content.empty() && msg.content_parts.empty()) {
            msg.content = refusal;
        } else if (!refusal.empty()) {
            ignored_.add(in.name("refusal"));
        }
        for (const char * media : { "audio", "images" }) {
            const json * value = in.take(media);
            refuse_field_if(value && !value->empty(), in.name(media),
                "is not supported: images and audio belong into content, as parts of type image_url and input_audio");
        }
        if (const json * annotations = in.take("annotations"); annotations && !annotations->empty()) {
            ignored_.add(in.name("annotations"));
        }
        if (const json * prefix = in.take("prefix")) {
            refuse_field_if(as_bool(*prefix, in.name("prefix")) && (!is_last || msg.role != "assistant"),
                in.name("prefix"), "belongs to an assistant message at the end, which is continued");
            prefix_ = is_last && msg.role == "assistant" ? prefix : nullptr;
        }
    }

    const json &      messages_;
    const std::string field_;
    ignored_fields &  ignored_;
    const json *      prefix_      = nullptr;
    size_t            n_functions_ = 0;
    std::string       last_id_;
};

}   // namespace

chat_messages read_messages(const json & messages, const std::string & field, ignored_fields & ignored) {
    return message_reader(messages, field, ignored).read();
}

}   // namespace dflash
