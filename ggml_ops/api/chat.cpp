#include "api/chat.h"

#include "api/answer_format.h"
#include "api/chat_messages.h"
#include "api/chat_tools.h"
#include "api/rendering.h"
#include "api/turns.h"
#include "api/unenforced.h"
#include "base/ignored_fields.h"
#include "base/json_fields.h"
#include "schema/chat_schema.h"

#include "common/chat.h"

namespace dflash {

namespace {

// ---- output format ----

// The schema that the answer must follow, null if there is none.
json read_schema(field_reader & in, ignored_fields & ignored) {
    const json * format = in.take("response_format");
    const json * given  = in.take("json_schema");
    json         schema;
    std::string  name = in.name("json_schema");
    if (given) {
        schema = *given;
    }
    if (format) {
        field_reader wanted(*format, in.name("response_format"));
        std::string  type = "text";
        wanted.read("type", type);
        const bool is_text = type.empty() || type == "text";
        refuse_field_if(!is_text && given, name, "cannot be combined with response_format: send one of them");
        if (type == "json_object") {
            name               = wanted.name("schema");
            const json * value = wanted.take("schema");
            schema             = value ? *value : json::object();
        } else if (type == "json_schema") {
            const json * wrapped = wanted.take("json_schema");
            const json * flat    = wrapped ? nullptr : wanted.take("schema");   // llama-server's short form
            field_reader wrapper(flat ? *format : wanted.need("json_schema"),
                flat ? in.name("response_format") : wanted.name("json_schema"));
            name               = wrapper.name("schema");
            const json * value = wrapper.take("schema");
            schema             = value ? *value : json::object();
            if (!flat) {
                ignored.add_untaken(wrapper, { "name", "description", "strict" });   // schemas are always enforced
            }
        } else if (!is_text) {
            throw field_error(wanted.name("type"), "must be \"text\", \"json_object\" or \"json_schema\"");
        }
        ignored.add_untaken(wanted, { "name", "description", "strict" });
    }
    if (schema.is_null()) {
        return schema;
    }
    if (as_object(schema, name).empty()) {
        schema["type"] = "object";   // any object
    }
    ignored.add(check_schema(schema, name));
    return schema;
}

void read_output(field_reader & in, common_chat_templates_inputs & inputs, ignored_fields & ignored) {
    const json schema = read_schema(in, ignored);
    if (!schema.is_null()) {
        inputs.json_schema = schema.dump();
    }
    in.read("grammar", inputs.grammar);
    if (inputs.grammar.empty()) {
        return;
    }
    refuse_field_if(!schema.is_null(), in.name("grammar"), "cannot be combined with a JSON schema: send one of them");
    refuse_field_if(
        may_call(inputs), in.name("grammar"), "cannot be combined with tools, whose calls have a grammar of their own");
}

// ---- template ----

void read_thinking(field_reader & in, common_chat_templates_inputs & inputs) {
    if (const json * kwargs = in.take("chat_template_kwargs")) {
        field_reader own(*kwargs, in.name("chat_template_kwargs"));
        for (const auto & entry : kwargs->items()) {
            inputs.chat_template_kwargs[entry.key()] = entry.value().dump();
        }
        own.read("enable_thinking", inputs.enable_thinking);
    }
    if (const json * value = in.take("enable_thinking")) {
        inputs.enable_thinking                         = as_bool(*value, in.name("enable_thinking"));
        inputs.chat_template_kwargs["enable_thinking"] = value->dump();   // takes precedence over the argument above
    }
    std::string format = "auto";
    in.read("reasoning_format", format);
    try {
        inputs.reasoning_format = common_reasoning_format_from_name(format);
    } catch (const std::exception &) {
        throw field_error(
            in.name("reasoning_format"), "must be \"auto\", \"deepseek\", \"deepseek-legacy\" or \"none\"");
    }
}

// Like llama-server, continues an assistant message at the end; unlike there, continue_final_message: false answers it.
// `prefix`: what the message itself says about it, or null.
void read_continuation(field_reader & in, common_chat_templates_inputs & inputs, const json * prefix) {
    const std::string       name      = in.name("continue_final_message");
    const common_chat_msg & last      = inputs.messages.back();
    const bool              assistant = last.role == "assistant";
    const json *            given     = in.take("continue_final_message");
    const json *            wanted    = given ? given : prefix;
    const json *            prompt    = in.take("add_generation_prompt");
    if (prompt) {
        inputs.add_generation_prompt = as_bool(*prompt, in.name("add_generation_prompt"));
    }
    if (wanted) {
        inputs.continue_final_message = common_chat_continuation_parse(*wanted);
        refuse_field_if(inputs.continue_final_message == COMMON_CHAT_CONTINUATION_NONE && as_bool(*wanted, name), name,
            "must be true, false, \"content\" or \"reasoning_content\"");
    } else if (assistant) {
        inputs.continue_final_message = COMMON_CHAT_CONTINUATION_AUTO;
    }
    if (inputs.continue_final_message == COMMON_CHAT_CONTINUATION_NONE) {
        return;
    }
    if (assistant && inputs.messages.size() > 1 && last.content.empty() && last.content_parts.empty() &&
        last.tool_calls.empty() && last.reasoning_content.empty()) {
        inputs.messages.pop_back();   // nothing to continue: start a new answer
        inputs.continue_final_message = COMMON_CHAT_CONTINUATION_NONE;
        return;
    }
    refuse_field_if(wanted && prompt && inputs.add_generation_prompt, name,
        "cannot be combined with add_generation_prompt: an answer is continued or begun");
    inputs.add_generation_prompt = false;
    const size_t      n          = inputs.messages.size();
    const std::string where      = member(in.name("messages"), n - 1);
    refuse_field_if(!assistant, name, "needs an assistant message at the end of messages");
    refuse_field_if(n >= 2 && inputs.messages[n - 2].role == "assistant", where,
        "follows another assistant message: only one can be continued");
    refuse_field_if(!last.tool_calls.empty(), where,
        "has tool_calls: it cannot be continued; append their results as tool messages");
}

// ---- request ----

// constrained: the tools, as the grammar has them.
common_chat_templates_inputs read_request(
    const common_chat_templates * templates, field_reader & in, chat_tools & constrained, ignored_fields & ignored) {
    common_chat_templates_inputs inputs;
    inputs.parallel_tool_calls   = common_chat_templates_get_caps(templates)["supports_parallel_tool_calls"];
    const chat_messages messages = read_messages(in.need("messages"), in.name("messages"), ignored);
    inputs.messages              = messages.all;
    read_tools(in, inputs, constrained, ignored);
    read_output(in, inputs, ignored);
    read_thinking(in, inputs);
    read_continuation(in, inputs, messages.prefix);
    in.read("force_pure_content", inputs.force_pure_content);
    in.finish();
    return inputs;
}

}   // namespace

std::string apply_chat(const common_chat_templates * templates, const std::string & body) {
    const json     object = parse_json(body, "body");
    field_reader   in(as_object(object, "body"), "");
    ignored_fields ignored;
    chat_tools     constrained;

    const common_chat_templates_inputs inputs = read_request(templates, in, constrained, ignored);
    add_unshown(templates, inputs, in, ignored);

    const schema_witness witness;
    answer_format        format = format_of(templates, inputs, constrained);
    if (inputs.grammar.empty()) {
        const char * schema = object.contains("response_format") ? "response_format" : "json_schema";
        check_made(format.sampling, may_call(inputs) ? "tools" : schema);
    }
    if (may_call(inputs) && !inputs.json_schema.empty() && !format.calls) {
        ignored.add("tools");   // no call can be written
    }
    if (format.calls) {
        add_unenforced(constrained, format.sampling.at("grammar").get<std::string>(), witness, ignored);
    }
    for (const size_t lost : lost_turns(inputs.messages, format.params.prompt)) {
        ignored.add(member(member("messages", lost), "content"));
    }
    if (inputs.reasoning_format == COMMON_REASONING_FORMAT_DEEPSEEK_LEGACY) {
        common_chat_templates_inputs untold = inputs;
        untold.reasoning_format             = COMMON_REASONING_FORMAT_NONE;
        format.parser["inline"]             = format_of(templates, untold, constrained).parser;
    }
    return json({
                    { "prompt", format.params.prompt },
                    { "stops", format.params.additional_stops },
                    { "sampling", format.sampling },
                    { "ignored", ignored.names() },
                    { "parser", format.parser },
                })
        .dump();
}

}   // namespace dflash
