#include "api/answer_format.h"

#include "accept/format_patterns.h"
#include "api/rendering.h"
#include "base/json_fields.h"
#include "grammar/gbnf.h"
#include "schema/chat_schema.h"
#include "schema/writer.h"

#include <regex>

namespace dflash {

namespace {

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

json sampling_of(const common_chat_params & params, const common_chat_templates_inputs & inputs) {
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

// Input of dflash_chat_init().
json parser_fields(const common_chat_params & params, const common_chat_templates_inputs & inputs) {
    json call_starts = json::array();
    for (const common_grammar_trigger & t : params.grammar_triggers) {
        if (t.type == COMMON_GRAMMAR_TRIGGER_TYPE_WORD) {
            call_starts.push_back(t.value);
        }
    }
    return {
        { "format", int(params.format) },
        { "generation_prompt", params.generation_prompt },
        { "continues", inputs.continue_final_message != COMMON_CHAT_CONTINUATION_NONE },
        { "json", !inputs.json_schema.empty() },
        { "thinking_end_tags", params.thinking_end_tags },
        { "call_starts", call_starts },
        { "arena", params.parser },
    };
}

// Calls or JSON. llama.cpp's formats support only one of the two, so both are built separately and the answer may be
// either. If the template has no tool calls, only the JSON remains.
answer_format either_format(const common_chat_templates * templates, const common_chat_templates_inputs & inputs,
    const chat_tools & constrained) {
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
        format.sampling           = sampling_of(of_text, text);
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
    format.sampling         = sampling_of(both, call);
    format.parser           = parser_fields(of_call, call);
    format.parser["answer"] = parser_fields(of_text, text);
    return format;
}

}   // namespace

answer_format format_of(
    const common_chat_templates * templates, common_chat_templates_inputs inputs, const chat_tools & constrained) {
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
            return { params, sampling_of(others, without), parser_fields(others, without) };
        }
    }
    if (may_call(inputs) && inputs.tool_choice == COMMON_CHAT_TOOL_CHOICE_REQUIRED) {
        refuse_field_if(
            inputs.force_pure_content, "tool_choice", "cannot be enforced: this server does not parse answers");
        refuse_field_if(params.grammar.empty() || params.grammar_lazy, "tool_choice",
            "cannot be enforced: this model's chat template has no tool calls");
    }
    return { params, sampling_of(params, inputs), parser_fields(params, inputs),
        may_call(inputs) && !params.grammar.empty() };
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

}   // namespace dflash
