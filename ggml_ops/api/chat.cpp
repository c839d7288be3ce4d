#include "api/chat.h"

#include "accept/format_patterns.h"
#include "api/chat_parser.h"
#include "api/turns.h"
#include "base/ignored_fields.h"
#include "files/chat_template.h"
#include "grammar/gbnf.h"
#include "base/json_fields.h"
#include "schema/chat_schema.h"
#include "schema/writer.h"

#include "common/chat.h"

#include <algorithm>
#include <regex>

namespace dflash {

namespace {

using messages = std::vector<common_chat_msg>;
using tools    = std::vector<common_chat_tool>;

// ---- messages ----

// Metadata of the provider that a message came from or was sent to.
const std::set<std::string> HARMLESS = { "cache_control", "index", "parsed_arguments" };

void read_content(const json & value, const std::string & field, common_chat_msg & msg, ignored_fields & ignored) {
    if (value.is_string()) {
        msg.content = value.get<std::string>();
        return;
    }
    refuse_field_if(!value.is_array(), field, "must be a string or an array of text parts");
    each_element(value, field, [&](const json & one, const std::string & name) {
        field_reader      part(one, name);
        const std::string type = part.need_string("type");
        if (type != "text" && type != "refusal") {
            // OpenAI's wording, which clients look for
            throw field_error(part.name("type"), "Invalid content type. ", type.substr(0, 40),
                " is only supported by certain models: this one reads text only");
        }
        msg.content_parts.push_back({ "text", part.need_string(type) });
        ignored.add_untaken(part, HARMLESS);
    });
    if (msg.role == "tool" || msg.role == "function") {
        msg.content = msg.render_content("\n");   // some templates ignore the parts of a result
        msg.content_parts.clear();
    }
}

// What a call, a tool or a choice of one is about.
field_reader function_of(field_reader & in, const std::string & type) {
    refuse_field_if(type != "function", in.name("type"), "must be \"function\"");
    return { in.need("function"), in.name("function") };
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

// OpenAI's messages, including field names of other servers and older clients.
class message_reader {
  public:
    message_reader(const json & messages, const std::string & field, ignored_fields & ignored) :
        messages_(as_array(messages, field)), field_(field), ignored_(ignored) {}

    messages read() {
        messages all;
        for (size_t i = 0; i < messages_.size(); ++i) {
            all.push_back(read_message(messages_.at(i), member(field_, i), i + 1 == messages_.size()));
        }
        refuse_field_if(all.empty(), field_, "is empty: at least one message is needed");
        return all;
    }

    // Whether the last message wants to be continued ("prefix": true); null if it does not say.
    const json * prefix() const { return prefix_; }

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
            refuse_field_if(value && !value->empty(), in.name(media), "is not supported: this model reads text only");
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

// ---- tools ----

// A tool as shown to the model, and the schema for its grammar.
struct known_tool {
    common_chat_tool shown, constrained;
};

// A name must not contain characters that formats write around it.
void check_tool_name(const std::string & name, const std::string & field) {
    refuse_field_if(name.empty(), field, "is empty");
    if (std::any_of(name.begin(), name.end(),
            [](char c) { return (unsigned char) c < ' ' || c == '"' || c == '\\' || c == '<' || c == '>'; })) {
        throw field_error(field, "may not have quotation marks, backslashes, < or >, or control characters");
    }
}

known_tool read_tool(const json & value, const std::string & field, ignored_fields & ignored) {
    field_reader     in(value, field);
    field_reader     function = function_of(in, in.need_string("type"));
    common_chat_tool tool;
    tool.name = function.need_string("name");
    check_tool_name(tool.name, function.name("name"));
    function.read("description", tool.description);
    tool.parameters              = "{}";
    common_chat_tool constrained = tool;
    if (const json * parameters = function.take("parameters")) {
        const std::string name = function.name("parameters");
        tool.parameters        = as_object(*parameters, name).dump();
        json wanted            = *parameters;
        if (!wanted.contains("type")) {
            wanted["type"] = "object";   // arguments are an object
        }
        constrained.parameters = wanted.dump();
        // Here, because an error of the template would not say which tool it is about.
        ignored.add(check_schema(wanted, name));
    }
    bool strict = true;
    function.read("strict", strict);   // ignored: a call's arguments always follow their schema
    ignored.add_untaken(function, HARMLESS);
    ignored.add_untaken(in, HARMLESS);
    return { tool, constrained };
}

// A named function is a required call with a single tool to choose from.
void read_tools(
    field_reader & in, common_chat_templates_inputs & inputs, tools & constrained, ignored_fields & ignored) {
    in.read_each("tools", [&](const json & value, const std::string & field) {
        const known_tool tool = read_tool(value, field, ignored);
        inputs.tools.push_back(tool.shown);
        constrained.push_back(tool.constrained);
    });
    in.read("parallel_tool_calls", inputs.parallel_tool_calls);

    const json * choice = in.take("tool_choice");
    if (!choice) {
        return;
    }
    const std::string name = in.name("tool_choice");
    if (choice->is_object()) {
        field_reader      named(*choice, name);
        field_reader      function = function_of(named, named.need_string("type"));
        const std::string wanted   = function.need_string("name");
        for (tools * all : { &inputs.tools, &constrained }) {
            all->erase(
                std::remove_if(all->begin(), all->end(), [&](const common_chat_tool & t) { return t.name != wanted; }),
                all->end());
        }
        refuse_field_if(inputs.tools.empty(), function.name("name"), "'", wanted, "' is not among the tools");
        ignored.add_untaken(function);
        ignored.add_untaken(named);
        inputs.tool_choice = COMMON_CHAT_TOOL_CHOICE_REQUIRED;
        return;
    }
    try {
        inputs.tool_choice = common_chat_tool_choice_parse_oaicompat(as_string(*choice, name));
    } catch (const field_error &) {
        throw;
    } catch (const std::invalid_argument &) {
        throw field_error(name,
            "must be \"auto\", \"none\", \"required\" or {\"type\": \"function\", \"function\": {\"name\": ...}}");
    }
    refuse_field_if(inputs.tool_choice == COMMON_CHAT_TOOL_CHOICE_REQUIRED && inputs.tools.empty(), name,
        "is \"required\", but there are no tools");
}

// Whether the answer may have calls.
bool may_call(const common_chat_templates_inputs & inputs) {
    return !inputs.tools.empty() && inputs.tool_choice != COMMON_CHAT_TOOL_CHOICE_NONE;
}

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

// ---- built-in templates ----

// Built-in templates only support roles and texts, and would drop everything else.
void check_for_builtin(const common_chat_templates_inputs & inputs, const field_reader & in, ignored_fields & ignored) {
    refuse_field_if(may_call(inputs), in.name("tools"),
        "cannot be shown: the server's chat template is one of llama.cpp's built-in "
        "ones, which have no tools; start it with the model's own or a Jinja file");
    if (!inputs.tools.empty()) {
        ignored.add(in.name("tools"));
    }
    for (const auto & argument : inputs.chat_template_kwargs) {
        ignored.add(member(in.name("chat_template_kwargs"), argument.first));
    }
    for (const common_chat_msg & msg : inputs.messages) {
        if (!msg.tool_calls.empty()) {
            ignored.add(member(in.name("messages"), 0) + ".tool_calls");
        }
        if (!msg.reasoning_content.empty()) {
            ignored.add(member(in.name("messages"), 0) + ".reasoning_content");
        }
    }
}

common_chat_params apply_builtin(const common_chat_templates * templates, common_chat_templates_inputs inputs) {
    inputs.use_jinja = false;
    std::string begun;
    if (inputs.continue_final_message != COMMON_CHAT_CONTINUATION_NONE) {
        begun = inputs.messages.back().render_content();
        inputs.messages.pop_back();
        inputs.add_generation_prompt = true;
    }
    for (common_chat_msg & msg : inputs.messages) {
        msg.role = msg.role == "developer" ? "system" : msg.role;
    }
    common_chat_params params = common_chat_templates_apply(templates, inputs);
    params.prompt += begun;
    return params;
}

// ---- result ----

void add_what_the_template_drops(
    const common_chat_templates * templates, const common_chat_templates_inputs & inputs, ignored_fields & ignored) {
    auto caps = common_chat_templates_get_caps(templates);
    if (!caps["supports_tools"] && may_call(inputs)) {
        ignored.add("tools");
    }
    for (const common_chat_msg & msg : inputs.messages) {
        if (!caps["supports_tool_calls"] && !msg.tool_calls.empty()) {
            ignored.add("messages[].tool_calls");
        }
    }
    if (!caps["supports_system_role"] && inputs.messages.size() == 1 && inputs.messages[0].role == "system") {
        ignored.add("messages[]");   // before a user's message, the template would merge it into that
    }
}

common_chat_params render(const common_chat_templates * templates, const common_chat_templates_inputs & inputs) {
    try {
        return is_builtin_template(common_chat_templates_source(templates))
                   ? apply_builtin(templates, inputs)
                   : common_chat_templates_apply(templates, inputs);
    } catch (const std::exception & e) {
        // after a trace of the template's source
        const std::string trace = e.what(), mark = "Error: ";
        const size_t      at = trace.rfind(mark);
        throw field_error("messages", "the chat template cannot render this request: ",
            (at == std::string::npos ? trace : trace.substr(at + mark.size())));
    }
}

// Tries other layouts for turns that the template rejects or does not show.
common_chat_params apply_template(
    const common_chat_templates * templates, const common_chat_templates_inputs & inputs) {
    return render_turns(
        inputs, [&](const common_chat_templates_inputs & laid_out) { return render(templates, laid_out); });
}

// Shows the tools as they are, independent of what the answer may be.
common_chat_params apply_template(
    const common_chat_templates * templates, const common_chat_templates_inputs & inputs, const tools & constrained) {
    const bool same = std::equal(inputs.tools.begin(), inputs.tools.end(), constrained.begin(), constrained.end(),
        [](const common_chat_tool & a, const common_chat_tool & b) { return a.parameters == b.parameters; });
    if (same || inputs.tool_choice == COMMON_CHAT_TOOL_CHOICE_NONE) {
        return apply_template(templates, inputs);
    }
    common_chat_templates_inputs other = inputs;
    other.tools                        = constrained;
    common_chat_params params          = apply_template(templates, other);
    other                              = inputs;
    // Without a grammar, which could not be made of schemas that are not enforced.
    other.tool_choice = COMMON_CHAT_TOOL_CHOICE_NONE;
    params.prompt     = apply_template(templates, other).prompt;
    return params;
}

// llama.cpp repeats this rule in formats that mark each call, even if only one call is wanted. The rule's name gets a
// number if a tool's name is also "call".
std::string one_call(const std::string & grammar) {
    static const std::regex many("(^|\n)(tool-calls(-[0-9]+)? ::= \\(tool-call(-[0-9]+)? space\\))\\+(\n|$)");
    return std::regex_replace(grammar, many, "$1$2$5");
}

// llama.cpp lets a few formats leave thoughts open, since their models call tools while they think. But JSON within
// thoughts is not an answer.
std::string closed_thoughts(std::string grammar, const common_chat_params & params) {
    for (const std::string & end : params.thinking_end_tags) {
        const std::string literal = gbnf_literal(end), open = "(" + literal + " | )";
        for (size_t at = grammar.find(open); at != std::string::npos; at = grammar.find(open)) {
            grammar.replace(at, open.size(), literal);
        }
    }
    return grammar;
}

// The grammar of the whole answer, starting with what the template put into the prompt for it. Formats without schemas
// have only the JSON after their thoughts.
std::string whole_grammar(const common_chat_params & params, const common_chat_templates_inputs & inputs) {
    if (params.grammar.empty()) {
        const auto &      ends = params.thinking_end_tags;
        const std::string end  = ends.empty() ? "" : ends.front();
        return grammar_of_answer(json::parse(inputs.json_schema), "json_schema",
            { params.generation_prompt, params.thinking_start_tag, end });
    }
    const std::string grammar = inputs.json_schema.empty() ? params.grammar : closed_thoughts(params.grammar, params);
    return inputs.parallel_tool_calls ? grammar : one_call(grammar);
}

json sampling_fields(const common_chat_params & params, const common_chat_templates_inputs & inputs) {
    static const char * const trigger_types[] = { "token", "word", "pattern",
        "pattern_full" };   // indexed by common_grammar_trigger_type
    json                      sampling        = json::object();
    if (!params.grammar.empty() || !inputs.json_schema.empty()) {
        sampling["grammar"] = whole_grammar(params, inputs);
        sampling["grammar_type"] =
            "tool_calls";   // llama.cpp's name for all grammars that start with the generation prompt
    } else if (!inputs.grammar.empty()) {
        sampling["grammar"] = inputs.grammar;
    }
    if (params.grammar_lazy) {
        sampling["grammar_lazy"] = true;
    }
    json triggers = json::array();
    for (const common_grammar_trigger & t : params.grammar_triggers) {
        json trigger = { { "type", trigger_types[t.type] }, { "value", t.value } };
        if (t.type == COMMON_GRAMMAR_TRIGGER_TYPE_TOKEN) {
            trigger["token"] = t.token;
        } else if (t.type != COMMON_GRAMMAR_TRIGGER_TYPE_WORD) {
            remember_format_pattern(t.value);
        }
        triggers.push_back(trigger);
    }
    const auto set = [&](const char * key, const auto & value) {
        if (!value.empty()) {
            sampling[key] = value;
        }
    };
    set("grammar_triggers", triggers);
    set("preserved_tokens", params.preserved_tokens);
    set("generation_prompt", params.generation_prompt);
    if (!params.thinking_end_tags.empty()) {
        set("thinking_start_tag", params.thinking_start_tag);
        set("thinking_end_tags", params.thinking_end_tags);
    }
    return sampling;
}

// Input of dflash_chat_new().
json parser_fields(const common_chat_params & params, const common_chat_templates_inputs & inputs) {
    return {
        { "format", int(params.format) },
        { "generation_prompt", params.generation_prompt },
        { "continues", inputs.continue_final_message != COMMON_CHAT_CONTINUATION_NONE },
        { "structured", may_call(inputs) || !inputs.json_schema.empty() },
        { "json", !inputs.json_schema.empty() },
        { "arena", params.parser },
    };
}

// ---- what an answer may be ----

struct answer_format {
    common_chat_params params;   // the prompt and the grammar
    json               sampling, parser;
    bool               calls = false;   // whether the grammar allows them
};

// Calls or JSON. llama.cpp's formats support only one of the two, so both are built separately and the answer may be
// either. If the template has no tool calls, only the JSON remains.
answer_format either_format(
    const common_chat_templates * templates, const common_chat_templates_inputs & inputs, const tools & constrained) {
    common_chat_templates_inputs shown = inputs, call = inputs, text = inputs;
    shown.json_schema.clear();
    call.json_schema.clear();
    call.tool_choice = COMMON_CHAT_TOOL_CHOICE_REQUIRED;
    text.tools.clear();
    text.tool_choice                 = COMMON_CHAT_TOOL_CHOICE_NONE;
    answer_format            format  = { apply_template(templates, shown, constrained), {}, {}, true };
    const common_chat_params of_call = apply_template(templates, call, constrained);
    common_chat_params       of_text = apply_template(templates, text, {});
    if (of_call.grammar.empty()) {
        of_text.generation_prompt = format.params.generation_prompt;
        format.sampling           = sampling_fields(of_text, text);
        format.parser             = parser_fields(of_text, text);
        format.calls              = false;
        return format;
    }
    refuse_field_if(of_call.grammar_lazy || of_call.generation_prompt != of_text.generation_prompt, "tools",
        "cannot be combined with a JSON schema: this model's chat template begins calls in "
        "another way than other answers");
    common_chat_params both = of_call;
    both.grammar            = with_prefix(whole_grammar(of_call, call), "call-") +
                   with_prefix(whole_grammar(of_text, text), "text-") + "root ::= call-root | text-root\n";
    both.preserved_tokens.insert(
        both.preserved_tokens.end(), of_text.preserved_tokens.begin(), of_text.preserved_tokens.end());
    format.sampling         = sampling_fields(both, call);
    format.parser           = parser_fields(of_call, call);
    format.parser["answer"] = parser_fields(of_text, text);
    return format;
}

answer_format format_of(
    const common_chat_templates * templates, common_chat_templates_inputs inputs, const tools & constrained) {
    if (may_call(inputs) && !inputs.json_schema.empty()) {
        if (inputs.tool_choice != COMMON_CHAT_TOOL_CHOICE_REQUIRED) {
            return either_format(templates, inputs, constrained);
        }
        inputs.json_schema.clear();   // the answer is a call
    }
    const common_chat_params params = apply_template(templates, inputs, constrained);
    if (!inputs.tools.empty() && !may_call(inputs)) {   // without tools: some formats would still look for calls
        common_chat_templates_inputs without = inputs;
        without.tools.clear();
        const common_chat_params others = apply_template(templates, without, {});
        if (others.generation_prompt == params.generation_prompt) {
            return { params, sampling_fields(others, without), parser_fields(others, without) };
        }
    }
    if (may_call(inputs) && inputs.tool_choice == COMMON_CHAT_TOOL_CHOICE_REQUIRED) {
        refuse_field_if(
            inputs.force_pure_content, "tool_choice", "cannot be enforced: this server does not parse answers");
        refuse_field_if(params.grammar.empty() || params.grammar_lazy, "tool_choice",
            "cannot be enforced: this model's chat template has no tool calls");
    }
    return { params, sampling_fields(params, inputs), parser_fields(params, inputs),
        may_call(inputs) && !params.grammar.empty() };
}

// ---- parameters that are not enforced ----

// Adds the keywords of a schema that say more than its type.
void add_keywords(const json & schema, const std::string & path, ignored_fields & ignored) {
    static const std::set<std::string> limits = { "enum", "const", "pattern", "format", "minLength", "maxLength",
        "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems",
        "prefixItems", "minProperties", "maxProperties", "propertyNames", "patternProperties", "required", "$ref" };
    if (!schema.is_object()) {
        return;
    }
    for (const auto & entry : schema.items()) {
        const std::string where = member(path, entry.key());
        if (limits.count(entry.key())) {
            ignored.add(where);
        } else if (entry.key() == "items") {
            add_keywords(entry.value(), where, ignored);
        } else if (entry.key() == "properties" && entry.value().is_object()) {
            for (const auto & property : entry.value().items()) {
                add_keywords(property.value(), member(where, property.key()), ignored);
            }
        } else if (entry.key() == "anyOf" || entry.key() == "oneOf" || entry.key() == "allOf") {
            for (size_t i = 0; entry.value().is_array() && i < entry.value().size(); ++i) {
                add_keywords(entry.value().at(i), member(where, i), ignored);
            }
        }
    }
}

// If a format writes values in its own way, such as strings without quotation marks, the grammar enforces only the
// names, or not even those.
void add_unwritten(const common_chat_tool & tool, const std::string & path, const std::string & grammar,
    const schema_witness & witness, ignored_fields & ignored) {
    const json schema = json::parse(tool.parameters);
    if (schema.empty() || witness.written.count(schema.dump())) {
        return;
    }
    for (const char * key : { "anyOf", "oneOf", "enum", "const", "minProperties", "maxProperties" }) {
        if (schema.contains(key)) {
            ignored.add(member(path, key));
        }
    }
    if (!schema.contains("properties")) {
        return;
    }
    for (const auto & property : schema.at("properties").items()) {
        const std::string literal = gbnf_literal(property.key());
        if (grammar.find(literal.substr(1, literal.size() - 2)) == std::string::npos) {
            ignored.add(path);   // neither name nor type
            return;
        }
        if (!witness.written.count(property.value().dump())) {
            add_keywords(property.value(), member(member(path, "properties"), property.key()), ignored);
        }
    }
}

// llama.cpp's grammars are checked like a client's. An error in them is an error in their input.
void check_made(const json & sampling, const std::string & source) {
    if (sampling.contains("grammar")) {
        try {
            check_gbnf(sampling.at("grammar").get<std::string>());
        } catch (const std::invalid_argument & e) {
            throw field_error(source, "gives a bad grammar: ", e.what());
        }
    }
}

}   // namespace

std::string apply_chat(const common_chat_templates * templates, const std::string & body) {
    const json                   object = parse_json(body, "body");
    field_reader                 in(as_object(object, "body"), "");
    common_chat_templates_inputs inputs;
    inputs.parallel_tool_calls = common_chat_templates_get_caps(templates)["supports_parallel_tool_calls"];
    ignored_fields ignored;
    message_reader messages(in.need("messages"), in.name("messages"), ignored);
    inputs.messages = messages.read();
    tools constrained;
    read_tools(in, inputs, constrained, ignored);
    read_output(in, inputs, ignored);
    read_thinking(in, inputs);
    read_continuation(in, inputs, messages.prefix());
    in.read("force_pure_content", inputs.force_pure_content);
    in.finish();
    const bool builtin = is_builtin_template(common_chat_templates_source(templates));
    if (builtin) {
        check_for_builtin(inputs, in, ignored);
    } else {
        add_what_the_template_drops(templates, inputs, ignored);
    }

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
        const std::string grammar = format.sampling.at("grammar").get<std::string>();
        for (const common_chat_tool & tool : constrained) {
            add_unwritten(tool, "tools[].function.parameters", grammar, witness, ignored);
        }
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
