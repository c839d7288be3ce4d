#include "api/chat_tools.h"

#include "api/chat_messages.h"
#include "schema/automaton.h"
#include "schema/chat_schema.h"

#include <algorithm>
#include <set>

namespace dflash {

namespace {

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

common_chat_tool_choice parse_choice(const std::string & choice, const std::string & field) {
    try {
        return common_chat_tool_choice_parse_oaicompat(choice);
    } catch (const std::invalid_argument &) {
        throw field_error(field,
            "must be \"auto\", \"none\", \"required\", {\"type\": \"function\", \"function\": {\"name\": ...}}",
            " or {\"type\": \"allowed_tools\", \"allowed_tools\": {\"mode\": ..., \"tools\": [...]}}");
    }
}

using tool_names = std::set<std::string>;

// Of {"type": "function", "function": {"name": ...}}. Throws if it is not among the tools.
std::string read_chosen(
    field_reader & in, const std::string & type, const tool_names & known, ignored_fields & ignored) {
    field_reader      function = function_of(in, type);
    const std::string wanted   = function.need_string("name");
    refuse_field_if(known.count(wanted) == 0, function.name("name"), "'", wanted, "' is not among the tools");
    ignored.add_untaken(function);
    ignored.add_untaken(in);
    return wanted;
}

// Of {"type": "allowed_tools", "allowed_tools": {"mode": "auto" or "required", "tools": [...]}}.
common_chat_tool_choice read_allowed(
    field_reader & in, const tool_names & known, tool_names & allowed, ignored_fields & ignored) {
    field_reader wanted(in.need("allowed_tools"), in.name("allowed_tools"));
    std::string  mode = "auto";
    wanted.read("mode", mode);
    refuse_field_if(mode != "auto" && mode != "required", wanted.name("mode"), "must be \"auto\" or \"required\"");
    each_element(as_array(wanted.need("tools"), wanted.name("tools")), wanted.name("tools"),
        [&](const json & value, const std::string & name) {
            field_reader one(value, name);
            allowed.insert(read_chosen(one, one.need_string("type"), known, ignored));
        });
    ignored.add_untaken(wanted);
    ignored.add_untaken(in);
    refuse_field_if(mode == "required" && allowed.empty(), wanted.name("tools"), "is empty, but a call is required");
    return allowed.empty()      ? COMMON_CHAT_TOOL_CHOICE_NONE
           : mode == "required" ? COMMON_CHAT_TOOL_CHOICE_REQUIRED
                                : COMMON_CHAT_TOOL_CHOICE_AUTO;
}

// The prompt shows the tools that may not be called, too: what it has in common with the turns before stays in the
// cache.
void read_choice(const json & choice, const std::string & field, common_chat_templates_inputs & inputs,
    chat_tools & constrained, ignored_fields & ignored) {
    if (!choice.is_object()) {
        inputs.tool_choice = parse_choice(as_string(choice, field), field);
        refuse_field_if(inputs.tool_choice == COMMON_CHAT_TOOL_CHOICE_REQUIRED && inputs.tools.empty(), field,
            "is \"required\", but there are no tools");
        return;
    }
    field_reader in(choice, field);
    tool_names   known, allowed;
    for (const common_chat_tool & tool : constrained) {
        known.insert(tool.name);
    }
    if (const std::string type = in.need_string("type"); type == "allowed_tools") {
        inputs.tool_choice = read_allowed(in, known, allowed, ignored);
    } else {
        inputs.tool_choice = COMMON_CHAT_TOOL_CHOICE_REQUIRED;
        allowed.insert(read_chosen(in, type, known, ignored));
    }
    constrained.erase(std::remove_if(constrained.begin(), constrained.end(),
                          [&](const common_chat_tool & tool) { return allowed.count(tool.name) == 0; }),
        constrained.end());
}

}   // namespace

void read_tools(
    field_reader & in, common_chat_templates_inputs & inputs, chat_tools & constrained, ignored_fields & ignored) {
    const automaton_budget budget;   // of all schemas together
    in.read_each("tools", [&](const json & value, const std::string & field) {
        const known_tool tool = read_tool(value, field, ignored);
        inputs.tools.push_back(tool.shown);
        constrained.push_back(tool.constrained);
    });
    in.read("parallel_tool_calls", inputs.parallel_tool_calls);

    if (const json * choice = in.take("tool_choice")) {
        read_choice(*choice, in.name("tool_choice"), inputs, constrained, ignored);
    }
}

bool may_call(const common_chat_templates_inputs & inputs) {
    return !inputs.tools.empty() && inputs.tool_choice != COMMON_CHAT_TOOL_CHOICE_NONE;
}

}   // namespace dflash
