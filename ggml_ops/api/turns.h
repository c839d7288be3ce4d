// Turns of a conversation, rearranged for templates that accept only certain shapes.

#pragma once

#include "common/chat.h"

#include <functional>
#include <string>
#include <vector>

namespace dflash {

using turns = std::vector<common_chat_msg>;

// The type of a content part whose text stands for an image or audio.
inline constexpr const char * MEDIA_MARKER = "media_marker";

// The text of a turn, with what stands for media, joined as llama.cpp joins the parts of a message.
std::string text_of(const common_chat_msg & turn);

// Nine letters and digits, as Mistral's templates require for call ids; an id of this form is kept. The result depends
// only on the id, so a longer conversation keeps the same prefix.
std::string short_call_id(const std::string & id);

// Shortens ids of calls, and of the calls that results refer to.
void shorten_call_ids(turns & all);

// Merges consecutive turns of one side.
void join_neighbours(turns & all);

// Turns instructions after the beginning of the conversation into user messages.
void let_user_instruct(turns & all);

// One call per turn, each followed by its result, for templates that reject several.
void split_calls(turns & all);

// Inserts an empty answer between a tool's result and a user message, for agents that send both at once.
void answer_results(turns & all);

// Inserts an empty question before an answer that starts the conversation.
void ask_first(turns & all);

// Turns tool results into user messages, for templates that know only two sides; removes empty answers.
void let_user_tell_results(turns & all);

// Turns all instructions into user messages.
void let_user_say_all(turns & all);

// Indices of the turns whose text is missing from a prompt. Templates may omit parts of earlier answers.
std::vector<size_t> lost_turns(const turns & all, const std::string & prompt);

using turn_renderer = std::function<common_chat_params(const common_chat_templates_inputs &)>;

// Uses the first layout in which `render` shows all texts except those of answers, else the first that it accepts.
// Throws its first error, a field_error, if it accepts none. A conversation that the template accepts and shows is
// unchanged.
common_chat_params render_turns(const common_chat_templates_inputs & inputs, const turn_renderer & render);

}   // namespace dflash
