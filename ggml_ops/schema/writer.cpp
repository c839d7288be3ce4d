#include "schema/writer.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <tuple>

namespace dflash {

namespace {

constexpr uint64_t MAX_REPEAT = 2000;       // in one GBNF {m,n}
constexpr size_t   MAX_BYTES  = 24 << 20;   // of a grammar; gbnf.cpp limits its elements

const std::string BETWEEN_TOKENS = "| \" \" | \"\\n\"{1,2} [ \\t]{0,20}";

// Rules for arbitrary JSON, each with the rules it uses.
struct known_rule {
    std::string              body;
    std::vector<std::string> needs;
};
const std::map<std::string, known_rule> KNOWN = {
    { "schema-hex", { "[0-9a-fA-F]", {} } },
    // of \u: a lone surrogate is not a character
    { "schema-unicode", { "([0-9a-cA-Ce-fE-F] schema-hex schema-hex schema-hex | [dD] [0-7] schema-hex schema-hex | "
                          "[dD] [89abAB] schema-hex schema-hex \"\\\\u\" [dD] [c-fC-F] schema-hex schema-hex)",
                            { "schema-hex" } } },
    { "schema-char",
        { "[^\"\\\\\\x00-\\x1F] | \"\\\\\" ([\"\\\\/bfnrt] | \"u\" schema-unicode)", { "schema-unicode" } } },
    { "schema-string", { "\"\\\"\" schema-char* \"\\\"\"", { "schema-char" } } },
    { "schema-integer", { "\"-\"? ([0] | [1-9] [0-9]{0,15})", {} } },
    { "schema-number",
        { "\"-\"? ([0] | [1-9] [0-9]{0,15}) (\".\" [0-9]{1,16})? ([eE] [-+]? ([0] | [1-9] [0-9]{0,15}))?", {} } },
    { "schema-boolean", { "\"true\" | \"false\"", {} } },
    { "schema-null", { "\"null\"", {} } },
    { "schema-pair", { "schema-string space \":\" space schema-value", { "schema-string" } } },
    { "schema-object",
        { "\"{\" space (schema-pair (\",\" space schema-pair)* space)? \"}\"", { "schema-pair", "schema-value" } } },
    { "schema-array", { "\"[\" space (schema-value (\",\" space schema-value)* space)? \"]\"", { "schema-value" } } },
    { "schema-value",
        { "schema-object | schema-array | schema-string | schema-number | schema-boolean | schema-null",
            { "schema-object", "schema-array", "schema-string", "schema-number", "schema-boolean", "schema-null" } } },
};

std::string point_text(uint32_t c) {
    static const char * const digits = "0123456789ABCDEF";
    const int32_t             n      = c < 0x100 ? 2 : c < 0x10000 ? 4 : 8;
    std::string               text   = n == 2 ? "\\x" : n == 4 ? "\\u" : "\\U";
    for (int32_t k = n - 1; k >= 0; --k) {
        text += digits[(c >> (4 * k)) & 15];
    }
    return text;
}

std::string class_text(const ranges & r) {
    std::string text = "[";
    for (const auto & [low, high] : r) {
        text += point_text(low) + (high > low ? "-" + point_text(high) : "");
    }
    return text + "]";
}

// The ways to write these characters in a JSON string: literally, or with their short escape or \u00XX.
std::vector<std::string> character_texts(const ranges & points) {
    static const std::vector<std::pair<uint32_t, char>> short_escapes = { { '"', '"' }, { '\\', '\\' }, { '\b', 'b' },
        { '\f', 'f' }, { '\n', 'n' }, { '\r', 'r' }, { '\t', 't' } };

    const auto holds = [&](uint32_t c) {
        return std::any_of(points.begin(), points.end(), [&](const auto & r) { return r.first <= c && c <= r.second; });
    };
    std::vector<std::string> ways;
    const ranges             plain = without(points, { { 0, 0x1F }, { '"', '"' }, { '\\', '\\' } });
    if (!plain.empty()) {
        ways.push_back(class_text(plain));
    }
    ranges letters;
    for (const auto & [point, letter] : short_escapes) {
        if (holds(point)) {
            letters.emplace_back(letter, letter);
        }
    }
    if (!letters.empty()) {
        ways.push_back("\"\\\\\" " + class_text(united(letters)));
    }
    for (uint32_t high = 0; high < 2; ++high) {
        ranges digits;
        for (uint32_t low = 0; low < 16; ++low) {
            const uint32_t c        = 16 * high + low;
            const bool     is_short = std::any_of(
                short_escapes.begin(), short_escapes.end(), [&](const auto & escape) { return escape.first == c; });
            if (!holds(c) || is_short) {
                continue;
            }
            const uint32_t digit = low < 10 ? '0' + low : 'a' + low - 10;
            digits.emplace_back(digit, digit);
            if (low >= 10) {
                digits.emplace_back(digit - 32, digit - 32);
            }
        }
        if (!digits.empty()) {
            ways.push_back("\"\\\\u00" + std::to_string(high) + "\" " + class_text(united(digits)));
        }
    }
    return ways;
}

std::string joined(const std::vector<std::string> & all) { return dflash::joined(all, " | "); }

}   // namespace

std::string gbnf_literal(const std::string & text) {
    std::string out = "\"";
    for (const char c : text) {
        out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : c == '"' ? "\\\"" : c == '\\' ? "\\\\" : std::string(1, c);
    }
    return out + "\"";
}

// ---- rules ----

grammar_rules::grammar_rules() { rules_["space"] = BETWEEN_TOKENS; }

void grammar_rules::set(const std::string & name, const std::string & body) {
    if ((n_bytes_ += body.size()) > MAX_BYTES) {
        throw std::invalid_argument("the schemas need too large a grammar");
    }
    rules_[name] = body;
}

std::string grammar_rules::add(const std::string & body) {
    const auto [place, added] = names_.emplace(body, "");
    if (added) {
        place->second = reserve();
        set(place->second, body);
    }
    return place->second;
}

std::string grammar_rules::known(const std::string & name) {
    std::vector<std::string> open = { name };
    while (!open.empty()) {
        const std::string  one  = open.back();
        const known_rule & rule = KNOWN.at(one);
        open.pop_back();
        if (rules_.emplace(one, rule.body).second) {
            open.insert(open.end(), rule.needs.begin(), rule.needs.end());
        }
    }
    return name;
}

std::string grammar_rules::repeated(const std::string & rule, uint64_t min, uint64_t max) {
    std::string text;
    for (uint64_t left = min; left > 0;) {
        const uint64_t n = std::min(left, MAX_REPEAT);
        text += (text.empty() ? "" : " ") + rule + (n > 1 ? "{" + std::to_string(n) + "}" : "");
        left -= n;
    }
    if (max == min) {
        return text;
    }
    text += text.empty() ? "" : " ";
    if (max == NO_LIMIT) {
        return text + rule + "*";
    }
    const uint64_t    rest  = (max - min) % MAX_REPEAT;
    const std::string full  = rule + "{" + std::to_string(MAX_REPEAT) + "}",
                      fewer = " | " + rule + "{0," + std::to_string(MAX_REPEAT - 1) + "}";
    std::string tail        = rest > 0 ? rule + "{0," + std::to_string(rest) + "}" : "";
    for (uint64_t left = (max - min) / MAX_REPEAT; left > 0; --left) {
        tail = add(std::string(full).append(tail.empty() ? "" : " ").append(tail).append(fewer));
    }
    return text + tail;
}

std::string grammar_rules::text() const {
    std::string out;
    for (const auto & [name, body] : rules_) {
        out.append(name).append(" ::= ").append(body).append("\n");
    }
    return out;
}

// ---- schemas ----

std::string schema_writer::rule_of(int32_t form) {
    const std::string name = name_of(form);
    write_open();
    return name;
}

std::string schema_writer::rule_of(const form_alternative & alternative, uint32_t types) {
    const std::string name = rules_.add(choices(alternative, types));
    write_open();
    return name;
}

// A form's rule may need other rules, including itself, so they are queued.
void schema_writer::write_open() {
    while (!open_.empty()) {
        const int32_t form = open_.back();
        open_.pop_back();
        std::vector<std::string> all;
        for (const form_alternative & a : forms_.at(form).alternatives) {
            all.push_back(choices(a, a.types));
        }
        rules_.set(names_.at(form), joined(all));
    }
}

std::string schema_writer::name_of(int32_t form) {
    if (is_any(form)) {
        return rules_.known("schema-value");
    }
    const auto [place, added] = names_.emplace(form, "");
    if (added) {
        place->second = rules_.reserve();
        open_.push_back(form);
    }
    return place->second;
}

bool schema_writer::is_any(int32_t form) const {
    const conjunction & of = forms_.at(form).of;
    return std::all_of(of.begin(), of.end(), [](const schema_node * n) {
        return !n->nothing && n->types == ALL_TYPES && !n->values && n->spoken == 0 && n->all_of.empty() &&
               n->groups.empty();
    });
}

std::string schema_writer::choices(const form_alternative & a, uint32_t types) {
    std::vector<std::string> all;
    if (a.values) {
        for (const json & value : *a.values) {
            if (type_of(value) & types) {
                all.push_back(literal_of(value));
            }
        }
        return joined(all);
    }
    if (types & TYPE_OBJECT) {
        all.push_back(object_of(a.object));
    }
    if (types & TYPE_ARRAY) {
        all.push_back(array_of(a.array));
    }
    if (types & TYPE_STRING) {
        all.push_back(string_of(a));
    }
    if (types & TYPE_NUMBER) {
        all.push_back(a.number ? text_rule(*a.number, false)
                               : rules_.known(types & TYPE_FRACTION ? "schema-number" : "schema-integer"));
    }
    if (types & TYPE_BOOLEAN) {
        all.push_back(rules_.known("schema-boolean"));
    }
    if (types & TYPE_NULL) {
        all.push_back(rules_.known("schema-null"));
    }
    return joined(all);
}

// One rule per state; a string ends with a quotation mark.
std::string schema_writer::text_rule(const automaton & texts, bool as_string) {
    const auto [place, added] = texts_.emplace(&texts, "");
    if (!added) {
        return place->second;
    }
    std::vector<std::string> names;
    for (size_t i = 0; i < texts.states.size(); ++i) {
        names.push_back(rules_.reserve());
    }
    for (size_t i = 0; i < texts.states.size(); ++i) {
        if (as_string && texts.takes_all(int32_t(i))) {
            rules_.set(names[i], rules_.known("schema-char") + "* \"\\\"\"");
            continue;
        }
        std::map<int32_t, ranges> targets;
        for (const automaton::edge & e : texts.states[i].edges) {
            targets[e.to].emplace_back(e.low, e.high);
        }
        std::vector<std::string> all;
        for (const auto & [to, points] : targets) {
            const std::vector<std::string> ways =
                as_string ? character_texts(points) : std::vector<std::string>{ class_text(points) };
            for (const std::string & way : ways) {
                all.push_back(way + " " + names[to]);
            }
        }
        std::string body = joined(all);
        if (texts.states[i].accepts) {
            if (as_string) {
                body.append(body.empty() ? "" : " | ").append("\"\\\"\"");
            } else {
                body = body.empty() ? "\"\"" : std::string("(").append(body).append(")?");
            }
        }
        rules_.set(names[i], body);
    }
    return place->second = as_string ? rules_.add("\"\\\"\" " + names[0]) : names[0];
}

std::string schema_writer::string_of(const form_alternative & a) {
    if (a.string) {
        return text_rule(*a.string, true);
    }
    if (a.min_length == 0 && a.max_length == NO_LIMIT) {
        return rules_.known("schema-string");
    }
    const std::string text = rules_.repeated(rules_.known("schema-char"), a.min_length, a.max_length);
    return "\"\\\"\" " + text + (text.empty() ? "" : " ") + "\"\\\"\"";
}

// One rule per item of the prefix, for the rest of the array from there.
std::string schema_writer::array_of(const form_array & array) {
    if (array.prefix.empty() && array.min == 0 && array.max == NO_LIMIT && is_any(array.rest)) {
        return rules_.known("schema-array");
    }
    const std::string end = "space \"]\"";
    const size_t      n   = array.prefix.size();
    if (array.max == 0) {
        return "\"[\" space \"]\"";
    }
    std::string tail = end;   // after the prefix
    if (array.rest >= 0 && array.max > n) {
        const std::string item = name_of(array.rest), next = rules_.add("\",\" space " + item);
        const uint64_t min = array.min > n ? array.min - n : 0, max = array.max == NO_LIMIT ? NO_LIMIT : array.max - n;
        if (n == 0) {
            const std::string more = rules_.repeated(next, min > 0 ? min - 1 : 0, max == NO_LIMIT ? NO_LIMIT : max - 1);
            const std::string all  = item + (more.empty() ? "" : " " + more) + " space";
            return "\"[\" space " + (min > 0 ? all : "(" + all + ")?") + " \"]\"";
        }
        tail = rules_.repeated(next, min, max) + " " + end;
    }
    for (size_t i = std::min<uint64_t>(n, array.max); i > 0; --i) {
        const std::string item = (i > 1 ? "\",\" space " : "") + name_of(array.prefix[i - 1]);
        const std::string rest = rules_.add(tail);
        tail                   = std::string(item).append(" ").append(rest);
        if (i > array.min) {
            tail.append(" | ").append(i > 1 ? end : "\"]\"");
        }
    }
    return "\"[\" space " + rules_.add(tail);
}

namespace {

// How much of an object has been written.
struct object_place {
    size_t   next  = 0;              // index of the next property
    bool     first = true;           // nothing written yet
    uint64_t n_min = 0, n_max = 0;   // pairs written, capped at the limits
    bool     has_free = false;       // a free key was written, which may occur again

    auto key() const { return std::tie(next, first, n_min, n_max, has_free); }
    bool operator<(const object_place & other) const { return key() < other.key(); }
};

// One continuation: a text and the place it leads to; no place: the end.
struct object_step {
    std::string                 text;
    std::optional<object_place> to;
};

// All reachable places from which the end can be reached.
class object_places {
  public:
    explicit object_places(const std::function<std::vector<object_step>(const object_place &)> & steps_from) {
        std::vector<object_place> open = { {} };
        steps_[{}];
        while (!open.empty()) {
            const object_place from = open.back();
            open.pop_back();
            std::vector<object_step> all = steps_from(from);
            for (const object_step & step : all) {
                if (step.to && steps_.emplace(*step.to, std::vector<object_step>{}).second) {
                    open.push_back(*step.to);
                }
            }
            steps_[from] = std::move(all);
        }
        // later properties first, since steps lead there
        for (bool changed = true; changed;) {
            changed = false;
            for (auto place = steps_.rbegin(); place != steps_.rend(); ++place) {
                const auto & all = place->second;
                if (!ending_.count(place->first) && std::any_of(all.begin(), all.end(), [&](const object_step & step) {
                        return !step.to || ending_.count(*step.to);
                    })) {
                    ending_.insert(place->first);
                    changed = true;
                }
            }
        }
    }

    const std::set<object_place> & ending() const { return ending_; }
    std::vector<object_step>       steps_from(const object_place & place) const {
        std::vector<object_step> all;
        for (const object_step & step : steps_.at(place)) {
            if (!step.to || ending_.count(*step.to)) {
                all.push_back(step);
            }
        }
        return all;
    }

  private:
    std::map<object_place, std::vector<object_step>> steps_;
    std::set<object_place>                           ending_;
};

// One rule per place: what may still be written from there. Returns the first one's name.
std::string add_rules(const object_places & places, grammar_rules & rules) {
    std::map<object_place, std::string> names;
    for (const object_place & place : places.ending()) {
        names[place] = rules.reserve();
    }
    for (const object_place & place : places.ending()) {
        std::vector<std::string> all;
        for (const object_step & step : places.steps_from(place)) {
            all.push_back(step.text + (step.to ? names.at(*step.to) : ""));
        }
        rules.set(names.at(place), joined(all));
    }
    return names.at({});
}

}   // namespace

std::string schema_writer::object_of(const form_object & object) {
    const auto & properties = object.properties;
    const bool   counts     = object.counts();
    if (properties.empty() && !counts && object.free.size() == 1 && !object.free[0].keys &&
        is_any(object.free[0].value)) {
        return rules_.known("schema-object");
    }
    std::vector<std::string> free;
    for (const form_object::free_property & f : object.free) {
        const std::string key = f.keys ? text_rule(*f.keys, true) : rules_.known("schema-string");
        free.push_back(rules_.add(key + " space \":\" space " + name_of(f.value)));
    }
    const object_places places([&](const object_place & from) {
        const std::string        comma = from.first ? "" : "\",\" space ";
        std::vector<object_step> all;
        const auto               add = [&](const std::string & pair, object_place to, bool is_free) {
            to.first = false;
            if (counts) {
                to.n_min += to.n_min < object.min && !(is_free && to.has_free && object.free_counts_once);
                to.has_free |= is_free;
                to.n_max += object.max != NO_LIMIT;
            }
            if (to.n_max <= object.max) {
                all.push_back({ comma + pair + " ", to });
            }
        };
        object_place to = from;
        if (from.next < properties.size()) {
            const form_object::property & p = properties[from.next];
            ++to.next;
            add(gbnf_literal(json(p.name).dump()) + " space \":\" space " + name_of(p.value), to, false);
            if (!p.required) {
                all.push_back({ "", to });
            }
            return all;
        }
        for (const std::string & pair : free) {
            add(pair, to, true);
        }
        if (!counts || from.n_min >= object.min) {
            all.push_back({ from.first ? "\"}\"" : "space \"}\"", std::nullopt });
        }
        return all;
    });
    return "\"{\" space " + add_rules(places, rules_);
}

std::string schema_writer::literal_of(const json & value) const {
    if (value.is_number()) {
        return gbnf_literal(canonical(value));
    }
    if (value.is_array() || value.is_object()) {
        const bool  is_array = value.is_array();
        std::string text     = is_array ? "\"[\" space" : "\"{\" space";
        bool        first    = true;
        const auto  add      = [&](const std::string & one) {
            text += (first ? " " : " \",\" space ") + one;
            first = false;
        };
        for (size_t i = 0; is_array && i < value.size(); ++i) {
            add(literal_of(value.at(i)));
        }
        if (!is_array) {
            for (const auto & entry : value.items()) {
                add(gbnf_literal(json(entry.key()).dump()) + " space \":\" space " + literal_of(entry.value()));
            }
        }
        return text + (first ? "" : " space") + (is_array ? " \"]\"" : " \"}\"");
    }
    return gbnf_literal(value.dump());
}

}   // namespace dflash
