#include "api/chat_tools.h"

#include "api/chat_messages.h"
#include "schema/automaton.h"
#include "schema/chat_schema.h"

#include <algorithm>

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

    const json * choice = in.take("tool_choice");
    if (!choice) {
        return;
    }
    const std::string name = in.name("tool_choice");
    if (choice->is_object()) {
        field_reader      named(*choice, name);
        field_reader      function = function_of(named, named.need_string("type"));
        const std::string wanted   = function.need_string("name");
        for (chat_tools * all : { &inputs.tools, &constrained }) {
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

bool may_call(const common_chat_templates_inputs & inputs) {
    return !inputs.tools.empty() && inputs.tool_choice != COMMON_CHAT_TOOL_CHOICE_NONE;
}

}   // namespace dflash
