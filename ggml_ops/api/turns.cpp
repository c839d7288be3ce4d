#include "api/turns.h"

#include "base/json_fields.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <exception>
#include <optional>

namespace dflash {

namespace {

constexpr size_t N_SHORT = 9;

bool is_instruction(const common_chat_msg & turn) { return turn.role == "system" || turn.role == "developer"; }

bool of_one_side(const common_chat_msg & a, const common_chat_msg & b) {
    return a.role != "tool" && (a.role == b.role || (is_instruction(a) && is_instruction(b)));
}

// Joins two texts like llama.cpp joins the text parts of a message.
std::string joined(const std::string & a, const std::string & b) {
    return a.empty() || b.empty() ? a + b : a + "\n" + b;
}

// Appends `next` to the turn before it.
void append(common_chat_msg & turn, const common_chat_msg & next) {
    turn.content = joined(text_of(turn), text_of(next));
    turn.content_parts.clear();
    turn.tool_calls.insert(turn.tool_calls.end(), next.tool_calls.begin(), next.tool_calls.end());
    turn.reasoning_content = joined(turn.reasoning_content, next.reasoning_content);
}

common_chat_msg empty_turn(const char * role) {
    common_chat_msg turn;
    turn.role = role;
    return turn;
}

// The last run of plain letters, digits and single spaces, which excludes what templates may escape, trim or cut off at
// the front (thoughts). Empty if no run is long enough.
std::string last_words(const std::string & text) {
    constexpr size_t LEAST = 4, MOST = 48;
    std::string      run;
    for (size_t i = text.size(); i > 0; --i) {
        const char c     = text[i - 1];
        const bool plain = std::isalnum((unsigned char) c) || (c == ' ' && !run.empty() && run.back() != ' ');
        if (plain && run.size() < MOST) {
            run += c;
        } else if (run.size() >= LEAST) {
            break;
        } else {
            run.clear();
        }
    }
    while (!run.empty() && run.back() == ' ') {
        run.pop_back();
    }
    std::reverse(run.begin(), run.end());
    return run.size() < LEAST ? "" : run;
}

// Finds texts in a prompt, mostly in order.
class prompt_search {
  public:
    explicit prompt_search(const std::string & prompt) : prompt_(prompt) {}

    bool has(const common_chat_msg & turn) {
        const std::string words = last_words(text_of(turn));
        size_t            at    = prompt_.find(words, next_);
        if (at == std::string::npos) {
            at = prompt_.find(words);
        } else if (!is_instruction(turn)) {   // some templates show instructions at the end
            next_ = at;
        }
        return at != std::string::npos;
    }

  private:
    const std::string & prompt_;
    size_t              next_ = 0;
};

// What is wrong with a prompt, or why there is none.
enum fault : unsigned { NONE = 0, REFUSED = 1, NO_INSTRUCTIONS = 2, NO_QUESTION = 4, NO_RESULT = 8 };

unsigned find_faults(const turns & all, const std::string & prompt) {
    prompt_search search(prompt);
    unsigned      faults = NONE;
    for (const common_chat_msg & turn : all) {
        if (turn.role != "assistant" && !search.has(turn)) {
            faults |= is_instruction(turn) ? NO_INSTRUCTIONS : turn.role == "tool" ? NO_RESULT : NO_QUESTION;
        }
    }
    return faults;
}

// Which change may fix which faults; each applies on top of those before it.
const struct {
    void (*lay_out)(turns &);
    unsigned mends;
} LAYOUTS[] = {
    { shorten_call_ids, REFUSED },
    { join_neighbours, REFUSED | NO_INSTRUCTIONS },
    { let_user_instruct, REFUSED | NO_INSTRUCTIONS },
    { split_calls, REFUSED },
    { answer_results, REFUSED },
    { ask_first, REFUSED },
    { let_user_say_all, NO_INSTRUCTIONS },
    { let_user_tell_results, REFUSED | NO_RESULT },
};

}   // namespace

std::string text_of(const common_chat_msg & turn) {
    std::string text        = turn.content;
    bool        after_media = false;
    for (const common_chat_msg_content_part & part : turn.content_parts) {
        const bool is_media = part.type == MEDIA_MARKER;
        if (is_media || after_media) {
            text += part.text;
        } else {
            text = joined(text, part.text);
        }
        after_media = is_media;
    }
    return text;
}

std::string short_call_id(const std::string & id) {
    if (id.size() == N_SHORT && std::all_of(id.begin(), id.end(), [](unsigned char c) { return std::isalnum(c); })) {
        return id;
    }
    static const char letters[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    uint64_t          hash      = 0xcbf29ce484222325;   // FNV-1a
    for (const unsigned char c : id) {
        hash = (hash ^ c) * 0x100000001b3;
    }
    std::string made;
    for (size_t i = 0; i < N_SHORT; ++i) {
        made += letters[hash % (sizeof(letters) - 1)];
        hash /= sizeof(letters) - 1;
    }
    return made;
}

void shorten_call_ids(turns & all) {
    for (common_chat_msg & turn : all) {
        for (common_chat_tool_call & call : turn.tool_calls) {
            call.id = short_call_id(call.id);
        }
        if (turn.role == "tool") {
            turn.tool_call_id = short_call_id(turn.tool_call_id);
        }
    }
}

void let_user_instruct(turns & all) {
    for (size_t i = 1; i < all.size(); ++i) {
        if (is_instruction(all[i]) && !is_instruction(all[i - 1])) {
            all[i].role = "user";
        }
    }
    join_neighbours(all);
}

void split_calls(turns & all) {
    turns split;
    for (size_t i = 0; i < all.size(); ++i) {
        common_chat_msg turn  = all[i];
        const auto      calls = std::move(turn.tool_calls);
        if (calls.size() < 2) {
            split.push_back(all[i]);
            continue;
        }
        size_t end = i + 1;   // end of its results
        while (end < all.size() && all[end].role == "tool") {
            ++end;
        }
        turns results(all.begin() + i + 1, all.begin() + end);
        for (size_t n = 0; n < calls.size(); ++n) {
            turn.tool_calls = { calls[n] };
            split.push_back(turn);
            turn              = empty_turn("assistant");
            const auto answer = std::find_if(results.begin(), results.end(),
                [&](const common_chat_msg & r) { return r.tool_call_id == calls[n].id; });
            if (answer != results.end()) {
                split.push_back(*answer);
                results.erase(answer);
            }
        }
        split.insert(split.end(), results.begin(), results.end());
        i = end - 1;
    }
    all = std::move(split);
}

void join_neighbours(turns & all) {
    turns sides;
    for (const common_chat_msg & turn : all) {
        if (!sides.empty() && of_one_side(sides.back(), turn)) {
            append(sides.back(), turn);
        } else {
            sides.push_back(turn);
        }
    }
    all = std::move(sides);
}

void answer_results(turns & all) {
    for (size_t i = 1; i < all.size(); ++i) {
        if (all[i - 1].role == "tool" && all[i].role == "user") {
            all.insert(all.begin() + i, empty_turn("assistant"));
        }
    }
}

void ask_first(turns & all) {
    const auto first = std::find_if_not(all.begin(), all.end(), is_instruction);
    if (first != all.end() && first->role == "assistant") {
        all.insert(first, empty_turn("user"));
    }
}

void let_user_tell_results(turns & all) {
    all.erase(std::remove(all.begin(), all.end(), empty_turn("assistant")), all.end());
    for (common_chat_msg & turn : all) {
        if (turn.role == "tool") {
            turn.role = "user";
            turn.tool_name.clear();
            turn.tool_call_id.clear();
        }
    }
    join_neighbours(all);
}

void let_user_say_all(turns & all) {
    for (common_chat_msg & turn : all) {
        turn.role = is_instruction(turn) ? "user" : turn.role;
    }
    join_neighbours(all);
}

std::vector<size_t> lost_turns(const turns & all, const std::string & prompt) {
    prompt_search       search(prompt);
    std::vector<size_t> lost;
    for (size_t i = 0; i < all.size(); ++i) {
        if (!search.has(all[i])) {
            lost.push_back(i);
        }
    }
    return lost;
}

common_chat_params render_turns(const common_chat_templates_inputs & inputs, const turn_renderer & render) {
    common_chat_templates_inputs      laid_out = inputs;
    std::optional<common_chat_params> taken;
    std::exception_ptr                refusal;
    const auto                        attempt = [&]() -> unsigned {
        try {
            common_chat_params params = render(laid_out);
            const unsigned     faults = find_faults(inputs.messages, params.prompt);
            if (faults == NONE || !taken) {
                taken = std::move(params);
            }
            return faults;
        } catch (const field_error &) {
            refusal = refusal ? refusal : std::current_exception();
            return REFUSED;
        }
    };
    unsigned faults = attempt();
    for (const auto & layout : LAYOUTS) {
        if (faults & layout.mends) {
            layout.lay_out(laid_out.messages);
            faults = attempt();
        }
    }
    if (!taken) {
        std::rethrow_exception(refusal);
    }
    return *taken;
}

}   // namespace dflash
