// Turns of a conversation, for templates that take them in certain shapes only.

#pragma once

#include "common/chat.h"

#include <functional>
#include <string>
#include <vector>

namespace dflash {

using turns = std::vector<common_chat_msg>;

// Nine letters and digits, which Mistral's templates want of a call's id; an id that has them stays as it is. The same
// id always gives the same one, so that a longer conversation has the same beginning.
std::string short_call_id(const std::string & id);

// Ids of calls, and of the calls that results answer, become short ones.
void shorten_call_ids(turns & all);

// Neighbours of one side become one turn.
void join_neighbours(turns & all);

// Instructions behind the conversation's beginning become what the user says.
void let_user_instruct(turns & all);

// One call in a turn, each followed by its result, for templates that refuse several.
void split_calls(turns & all);

// An empty answer between a tool's result and what the user says: agents send both at once.
void answer_results(turns & all);

// An empty question before an answer that begins the conversation.
void ask_first(turns & all);

// A tool's result becomes what the user says, for templates that know two sides only; empty answers go.
void let_user_tell_results(turns & all);

// Instructions become the beginning of what the user says.
void let_user_say_all(turns & all);

// Indices of the turns whose text a prompt does not have. Of answers, templates leave out what their models need not
// see again.
std::vector<size_t> lost_turns(const turns & all, const std::string & prompt);

using turn_renderer = std::function<common_chat_params(const common_chat_templates_inputs &)>;

// The first way to lay out the turns in which `render` shows all texts but those of answers; else the first that it
// takes at all. Throws its first refusal, a field_error, if it takes none. What a template takes and shows stays as it
// is.
common_chat_params render_turns(const common_chat_templates_inputs & inputs, const turn_renderer & render);

}   // namespace dflash
