#include "api/rendering.h"

#include "api/turns.h"
#include "files/chat_template.h"

#include <algorithm>

namespace dflash {

namespace {

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

bool mentions(const common_chat_templates * templates, const std::string & word) {
    return common_chat_templates_source(templates).find(word) != std::string::npos ||
           common_chat_templates_source(templates, "tool_use").find(word) != std::string::npos;
}

// Thinking is more than a variable: common/ also closes the tag "<think>" that a template ends with. Not to think is
// what happens anyway where nothing of it is mentioned. Agents send an effort with every request, for whatever model.
bool heeds(const common_chat_templates * templates, const std::string & argument, const std::string & value) {
    if (argument == "enable_thinking") {
        return value == "false" || mentions(templates, "think");
    }
    return argument == "reasoning_effort" || mentions(templates, argument);
}

void add_what_the_template_drops(const common_chat_templates * templates, const common_chat_templates_inputs & inputs,
    const field_reader & in, ignored_fields & ignored) {
    for (const auto & [argument, value] : inputs.chat_template_kwargs) {
        if (!heeds(templates, argument, value)) {
            ignored.add(member(in.name("chat_template_kwargs"), argument));
        }
    }
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

}   // namespace

void add_unshown(const common_chat_templates * templates, const common_chat_templates_inputs & inputs,
    const field_reader & in, ignored_fields & ignored) {
    if (is_builtin_template(common_chat_templates_source(templates))) {
        check_for_builtin(inputs, in, ignored);
    } else {
        add_what_the_template_drops(templates, inputs, in, ignored);
    }
}

common_chat_params apply_template(const common_chat_templates * templates, const common_chat_templates_inputs & inputs,
    const chat_tools & constrained) {
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

}   // namespace dflash
