// What chat_parser leaves out of the text that it parses.

#include "api/chat_parser.h"

#include <algorithm>
#include <cctype>

namespace dflash {

namespace {

constexpr size_t KEPT  = 512;    // bytes kept at the end: longer than any mark of a format
constexpr size_t WORTH = 1024;   // bytes; below that, parsing twice costs more

// Null if the call does not exist.
template <class Message> auto field_of(Message & msg, int32_t field) -> decltype(&msg.content) {
    if (field < 0) {
        return field == chat_parser::CONTENT ? &msg.content : &msg.reasoning_content;
    }
    return size_t(field) < msg.tool_calls.size() ? &msg.tool_calls[field].arguments : nullptr;
}

// Whether the text may be cut here: at a character boundary, outside of escape sequences and not next to a mark.
bool is_quiet(const std::string & text, size_t at) {
    constexpr size_t AROUND = 6;
    if (at < AROUND || at >= text.size() || (text[at] & 0xC0) == 0x80) {
        return false;
    }
    return std::all_of(text.begin() + (at - AROUND), text.begin() + at + 1,
        [](char c) { return std::isalnum((unsigned char) c) || c == ' ' || (c & 0x80); });
}

// Counts JSON's quotation marks in text[begin, end); `begin` is outside of an escape sequence.
size_t count_quotes(const std::string & text, size_t begin, size_t end) {
    size_t n = 0;
    for (size_t i = begin; i < end; ++i) {
        n += text[i] == '"';
        i += text[i] == '\\';
    }
    return n;
}

// Whether the messages are equal except for one field, which both have.
bool same_apart_from(int32_t field, common_chat_msg a, common_chat_msg b) {
    field_of(a, field)->clear();
    field_of(b, field)->clear();
    for (common_chat_msg * msg : { &a, &b }) {
        for (common_chat_tool_call & call : msg->tool_calls) {
            call.id.clear();   // some formats generate one
        }
    }
    return a == b;
}

}   // namespace

chat_parser::cut * chat_parser::find_cut(int32_t field) {
    const auto found = std::find_if(cuts_.begin(), cuts_.end(), [&](const cut & c) { return c.field == field; });
    return found == cuts_.end() ? nullptr : &*found;
}

// Whether the message is consistent with what was sent, apart from the cuts.
bool chat_parser::agrees(const common_chat_msg & msg) {
    return std::all_of(cuts_.begin(), cuts_.end(), [&](const cut & c) {
        const std::string * now = field_of(msg, c.field);
        if (!now || now->size() < c.at) {
            return false;
        }
        const std::string & before = sent(c.field);
        const size_t        n      = std::min(now->size(), before.size() - c.length) - c.at;
        return now->compare(0, c.at, before, 0, c.at) == 0 && now->compare(c.at, n, before, c.at + c.length, n) == 0;
    });
}

void chat_parser::shorten(const common_chat_msg & msg) {
    const std::string * field = field_of(msg, growing_);
    if (short_.size() < shorten_at_ || !field) {
        return;
    }
    shorten_at_ = 2 * short_.size();   // if this attempt fails
    size_t end  = short_.size() - std::min(KEPT, short_.size());
    while (end > 0 && !is_quiet(short_, end)) {
        --end;
    }
    if (const cut * c = find_cut(growing_)) {
        leave_out(c->text_at, end, msg);
        return;
    }
    // The field's position in the text is unknown, since either may be escaped.
    for (size_t n = field->size(); n > KEPT + WORTH; n -= n / 8) {
        size_t begin = short_.size() - std::min(n, short_.size());
        while (begin < end && !is_quiet(short_, begin)) {
            ++begin;
        }
        if (leave_out(begin, end, msg)) {
            return;
        }
    }
}

// Leaves out short_[begin, end) if it holds only bytes of the growing field that were already sent.
bool chat_parser::leave_out(size_t begin, size_t end, const common_chat_msg & msg) {
    if (end < begin + WORTH) {
        return false;
    }
    const std::string   text  = short_.substr(0, begin) + short_.substr(end);
    const reading       rest  = format_.read(text);
    const std::string * whole = field_of(msg, growing_);
    const std::string * left  = field_of(rest.msg, growing_);
    if (!rest.fits || !left || left->size() >= whole->size() || !same_apart_from(growing_, msg, rest.msg)) {
        return false;
    }
    cut *        c      = find_cut(growing_);
    const size_t length = whole->size() - left->size();
    const size_t at =
        c ? c->at : size_t(std::mismatch(left->begin(), left->end(), whole->begin()).first - left->begin());
    if (left->size() < at || left->compare(0, at, *whole, 0, at) != 0 ||
        left->compare(at, std::string::npos, *whole, at + length, std::string::npos) != 0) {
        return false;
    }
    // In JSON, the part left out must lie within one string.
    if ((growing_ >= 0 || (growing_ == CONTENT && format_.is_json())) &&
        ((at > 0 && (*whole)[at - 1] == '\\') || count_quotes(*whole, 0, at) % 2 == 0 ||
            count_quotes(*whole, at, at + length) > 0)) {
        return false;
    }
    if (at + length + (c ? c->length : 0) > sent(growing_).size()) {
        return false;
    }
    if (c) {
        c->length += length;
    } else {
        cuts_.push_back({ growing_, begin, at, length });
    }
    short_      = text;
    shorten_at_ = short_.size() + INTERVAL;
    return true;
}

}   // namespace dflash
