#include "schema/form.h"

#include <algorithm>
#include <set>

namespace dflash {

namespace {

constexpr size_t  MAX_ALTERNATIVES = 1000;   // per form
constexpr size_t  MAX_FORMS        = 20000;
constexpr int64_t MAX_WORK         = 5000000;   // nodes and values visited
constexpr int32_t MAX_CHAIN        = 60;        // of references and of parts that apply to the same value
constexpr size_t  MAX_PATTERNS     = 6;         // per object: each subset of them is a separate kind of key

// Nodes that apply to the same value, and their combined types.
struct joint {
    uint32_t    types = ALL_TYPES, spoken = 0;
    bool        typed = false;
    conjunction nodes = {};

    bool has(const schema_node * n) const { return std::find(nodes.begin(), nodes.end(), n) != nodes.end(); }

    // A schema without a type gets the types that its keywords apply to.
    uint32_t written_types() const { return !typed && (types & spoken) ? types & spoken : types; }
};

conjunction in_any_order(const conjunction & nodes) {
    conjunction sorted = nodes;
    std::sort(sorted.begin(), sorted.end());
    sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
    return sorted;
}

size_t length_of(const std::string & text) {
    return size_t(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

}   // namespace

uint64_t form_object::n_required() const {
    return uint64_t(std::count_if(properties.begin(), properties.end(), [](const property & p) { return p.required; }));
}

class form_builder {
  public:
    form_builder(schema_forms & out) : out_(out), document_(out.document_) {
        out_.unheld_ = document_.unheld();
        form_of({ &document_.root() });
        for (size_t i = 0; i < out_.forms_.size(); ++i) {   // forms_ grows
            fill(out_.forms_[i]);
        }
        find_finite();
        if (!out_.root().finite) {
            throw field_error(impossible(0), "lets no value through: its parts contradict each other, or never end");
        }
        for (schema_form & form : out_.forms_) {
            prune(form);
        }
    }

  private:
    void work(int64_t n = 1) {
        if ((work_ += n) > MAX_WORK) {
            throw field_error(document_.field(), "is too large: its parts combine in too many ways");
        }
    }

    void report(const std::string & path) {
        if (std::find(out_.unheld_.begin(), out_.unheld_.end(), path) == out_.unheld_.end()) {
            out_.unheld_.push_back(path);
        }
    }

    // ---- alternatives ----

    std::vector<joint> joined(const conjunction & all) {
        std::vector<joint> found = { {} };
        for (const schema_node * n : all) {
            found = add(std::move(found), *n);
        }
        return found;
    }

    // Combines each alternative with the node and one option from each of its groups.
    std::vector<joint> add(std::vector<joint> all, const schema_node & n) {
        if (std::find(chain_.begin(), chain_.end(), &n) != chain_.end()) {
            throw field_error(n.path, "refers to itself without end");
        }
        if (chain_.size() > size_t(MAX_CHAIN)) {
            throw field_error(
                n.path, "is a reference to a reference, and so on: more than " + std::to_string(MAX_CHAIN));
        }
        chain_.push_back(&n);
        std::vector<joint> done, open;
        for (joint & one : all) {
            work(1 + int64_t(one.nodes.size()));
            if (one.has(&n)) {
                done.push_back(std::move(one));
                continue;
            }
            one.types &= n.nothing ? 0 : n.types;
            one.spoken |= n.spoken;
            one.typed |= n.typed;
            one.nodes.push_back(&n);
            if (one.types) {
                open.push_back(std::move(one));
            }
        }
        for (const schema_node * part : n.all_of) {
            open = add(std::move(open), *part);
        }
        for (const schema_node::group & group : n.groups) {
            std::vector<joint>    next;
            std::set<conjunction> known;
            for (const schema_node * option : group.options) {
                for (joint & one : add(open, *option)) {
                    work(int64_t(next.size() + one.nodes.size()));
                    if (known.insert(in_any_order(one.nodes)).second) {
                        next.push_back(std::move(one));
                    }
                }
                if (next.size() > MAX_ALTERNATIVES) {
                    throw field_error(member(n.path, group.key), "combines with its neighbours in too many ways");
                }
            }
            open = std::move(next);
            if (group.key == "oneOf" && told_.insert(&group).second && !apart(group)) {
                report(member(n.path, "oneOf"));
            }
        }
        chain_.pop_back();
        done.insert(done.end(), std::make_move_iterator(open.begin()), std::make_move_iterator(open.end()));
        return done;
    }

    // ---- values ----

    bool fits(const schema_node & n, const json & value) {
        work();
        return fits_alone(n, value) && std::all_of(n.all_of.begin(), n.all_of.end(), [&](const schema_node * part) {
            return fits(*part, value);
        }) && std::all_of(n.groups.begin(), n.groups.end(), [&](const schema_node::group & group) {
            const auto hits = std::count_if(group.options.begin(), group.options.end(),
                [&](const schema_node * option) { return fits(*option, value); });
            return group.key == "oneOf" ? hits == 1 : hits > 0;
        });
    }

    // Checks the node's own keywords.
    bool fits_alone(const schema_node & n, const json & value) {
        work();
        const uint32_t type = type_of(value);
        if (n.nothing || !(n.types & type) || (n.values && !n.value_texts.count(canonical(value)))) {
            return false;
        }
        switch (type) {
            case TYPE_INTEGER:
            case TYPE_FRACTION: return number_fits(n.numbers, as_decimal(value.dump()));
            case TYPE_STRING: {
                const std::string text   = value.get<std::string>();
                const size_t      length = length_of(text);
                work(int64_t(text.size() / 16));
                return length >= n.min_length && length <= n.max_length && (!n.pattern || n.pattern->accepts(text));
            }
            case TYPE_ARRAY: return array_fits(n, value);
            case TYPE_OBJECT: return object_fits(n, value);
            default: return true;
        }
    }

    static bool number_fits(const number_limits & limits, const decimal & number) {
        const auto inside = [&](const auto & limit, int32_t side) {
            const int32_t order = limit ? side * compare(number, limit->value) : 1;
            return order > 0 || (order == 0 && limit && !limit->exclusive);
        };
        return inside(limits.low, 1) && inside(limits.high, -1) &&
               std::all_of(limits.divisors.begin(), limits.divisors.end(),
                   [&](const decimal & divisor) { return divides(divisor, number); });
    }

    bool array_fits(const schema_node & n, const json & value) {
        if (value.size() < n.min_items || value.size() > n.max_items) {
            return false;
        }
        for (size_t i = 0; i < value.size(); ++i) {
            const schema_node * item = i < n.prefix.size() ? n.prefix[i] : n.rest;
            if (item && !fits(*item, value.at(i))) {
                return false;
            }
        }
        return true;
    }

    bool object_fits(const schema_node & n, const json & value) {
        if (value.size() < n.min_properties || value.size() > n.max_properties ||
            !std::all_of(
                n.required.begin(), n.required.end(), [&](const std::string & key) { return value.contains(key); })) {
            return false;
        }
        for (const auto & entry : value.items()) {
            const conjunction of_key = value_of(n, entry.key());
            if (!std::all_of(
                    of_key.begin(), of_key.end(), [&](const schema_node * s) { return fits(*s, entry.value()); }) ||
                (n.property_names && !fits(*n.property_names, json(entry.key())))) {
                return false;
            }
        }
        return true;
    }

    // The schemas that a node applies to a property.
    conjunction value_of(const schema_node & n, const std::string & key) {
        conjunction all;
        const auto  property = n.property_of.find(key);
        if (property != n.property_of.end()) {
            all.push_back(property->second);
        }
        for (const auto & one : n.pattern_properties) {
            work();
            if (one.keys->accepts(key)) {
                all.push_back(one.value);
            }
        }
        if (all.empty() && n.additional) {
            all.push_back(n.additional);
        }
        return all;
    }

    // ---- oneOf ----

    // Whether no value written for one option can match another, as far as a simple check shows.
    bool apart(const schema_node::group & group) {
        std::vector<std::vector<joint>>        options;
        const std::vector<const schema_node *> chain = std::move(chain_);
        chain_.clear();
        for (const schema_node * option : group.options) {
            options.push_back(joined({ option }));
        }
        chain_ = chain;
        for (size_t i = 0; i < options.size(); ++i) {
            for (size_t k = 0; k < options.size(); ++k) {
                for (const joint & a : options[i]) {
                    for (const joint & b : options[k]) {
                        if (i != k && !apart(a, b)) {
                            return false;
                        }
                    }
                }
            }
        }
        return true;
    }

    // `a` as written, `b` as specified.
    bool apart(const joint & a, const joint & b) {
        work();
        if (!(a.written_types() & b.types)) {
            return true;
        }
        if (const auto values = values_of(a)) {
            return std::none_of(values->begin(), values->end(), [&](const json & v) { return fits_all(b, v); });
        }
        if (const auto values = values_of(b)) {
            return std::none_of(values->begin(), values->end(), [&](const json & v) { return fits_all(a, v); });
        }
        return (a.written_types() & b.types) == TYPE_OBJECT && (kept_apart(a, b) || kept_apart(b, a));
    }

    // Whether `a` requires a property whose values `b` rejects.
    bool kept_apart(const joint & a, const joint & b) {
        for (const schema_node * n : a.nodes) {
            for (const std::string & key : n->required) {
                std::optional<std::vector<json>> values;
                for (const schema_node * part : value_of(a, key)) {
                    values = values ? values : part->values;
                }
                const conjunction other = value_of(b, key);
                const bool        nothing =
                    std::any_of(other.begin(), other.end(), [](const schema_node * s) { return s->nothing; });
                if (nothing || (values && std::none_of(values->begin(), values->end(), [&](const json & v) {
                        return std::all_of(
                            other.begin(), other.end(), [&](const schema_node * s) { return fits(*s, v); });
                    }))) {
                    return true;
                }
            }
        }
        return false;
    }

    bool fits_all(const joint & one, const json & value) {
        return std::all_of(
            one.nodes.begin(), one.nodes.end(), [&](const schema_node * n) { return fits_alone(*n, value); });
    }

    conjunction value_of(const joint & one, const std::string & key) {
        std::set<std::pair<int32_t, const schema_node *>> all;
        for (const schema_node * n : one.nodes) {
            for (const schema_node * s : value_of(*n, key)) {
                all.emplace(s->number, s);
            }
        }
        return in_order(all);
    }

    static conjunction in_order(const std::set<std::pair<int32_t, const schema_node *>> & all) {
        conjunction out;
        for (const auto & one : all) {
            out.push_back(one.second);
        }
        return out;
    }

    // The values that all its nodes allow, if one of them lists values.
    std::optional<std::vector<json>> values_of(const joint & one) {
        const auto lists =
            std::find_if(one.nodes.begin(), one.nodes.end(), [](const schema_node * n) { return n->values; });
        if (lists == one.nodes.end()) {
            return std::nullopt;
        }
        const schema_node &     n      = **lists;
        const std::vector<json> listed = n.values.value_or(std::vector<json>());
        std::vector<json>       all;
        for (const json & value : listed) {
            if (fits_all(one, value)) {
                all.push_back(value);
            }
        }
        if (all.empty() &&
            std::none_of(listed.begin(), listed.end(), [&](const json & v) { return fits_alone(n, v); })) {
            throw field_error(member(n.path, n.values_key), "has no value that the keywords beside it allow");
        }
        return all;
    }

    // ---- forms ----

    int32_t form_of(const conjunction & all) {
        const auto [place, added] = found_.emplace(all, int32_t(out_.forms_.size()));
        if (added) {
            if (out_.forms_.size() >= MAX_FORMS) {
                throw field_error(
                    document_.field(), "is too large: more than " + std::to_string(MAX_FORMS) + " schemas");
            }
            out_.forms_.push_back({ all, {}, false });
        }
        return place->second;
    }

    void fill(schema_form & form) {
        std::vector<form_alternative> all;
        const conjunction             of = form.of;
        for (const joint & one : joined(of)) {
            form_alternative a;
            a.types  = one.written_types();
            a.values = values_of(one);
            if (!a.values) {
                fill_number(one, a);
                fill_string(one, a);
                if (a.types & TYPE_ARRAY) {
                    fill_array(one, a);
                }
                if (a.types & TYPE_OBJECT) {
                    fill_object(one, a);
                }
            }
            all.push_back(std::move(a));
        }
        form.alternatives = std::move(all);
    }

    void fill_number(const joint & one, form_alternative & a) {
        number_limits limits;
        for (const schema_node * n : one.nodes) {
            const auto tighten = [](auto & to, const auto & from, int32_t sign) {
                const int32_t order = from && to ? sign * compare(from->value, to->value) : 1;
                if (from && (order > 0 || (order == 0 && from->exclusive))) {
                    to = from;
                }
            };
            tighten(limits.low, n->numbers.low, 1);
            tighten(limits.high, n->numbers.high, -1);
            limits.divisors.insert(limits.divisors.end(), n->numbers.divisors.begin(), n->numbers.divisors.end());
        }
        if (!(a.types & TYPE_NUMBER) || (!limits.low && !limits.high && limits.divisors.empty())) {
            return;
        }
        limits.integer = !(a.types & TYPE_FRACTION);
        try {
            a.number = std::make_shared<const automaton>(numbers(limits));
        } catch (const std::exception &) {
            for (const schema_node * n : one.nodes) {
                if (!n->numbers.divisors.empty()) {
                    report(member(n->path, "multipleOf"));
                }
            }
            limits.divisors.clear();
            a.number = std::make_shared<const automaton>(numbers(limits));
        }
        work(int64_t(a.number->states.size()));
        if (a.number->is_empty()) {
            a.types &= ~uint32_t(TYPE_NUMBER);
        }
    }

    void fill_string(const joint & one, form_alternative & a) {
        const schema_node *              longest = nullptr;
        std::shared_ptr<const automaton> held;
        for (const schema_node * n : one.nodes) {
            a.min_length = std::max(a.min_length, n->min_length);
            a.max_length = std::min(a.max_length, n->max_length);
            longest      = n->min_length > 0 || n->max_length < NO_LIMIT ? n : longest;
            if (n->pattern && (a.types & TYPE_STRING)) {
                held = held ? crossed(*held, *n->pattern, n->path, "pattern") : n->pattern;
            }
        }
        if (held && longest) {
            try {
                const size_t max = a.max_length == NO_LIMIT ? SIZE_MAX : size_t(a.max_length);
                held             = std::make_shared<const automaton>(both(*held, lengths(size_t(a.min_length), max)));
            } catch (const automaton_size_error &) {
                report(member(longest->path, a.min_length > 0 ? "minLength" : "maxLength"));
            }
        }
        a.string = held;
        if (a.min_length > a.max_length || (held && held->is_empty())) {
            a.types &= ~uint32_t(TYPE_STRING);
        }
    }

    std::shared_ptr<const automaton> crossed(
        const automaton & a, const automaton & b, const std::string & path, const char * key) {
        try {
            auto result = std::make_shared<const automaton>(both(a, b));
            work(int64_t(result->states.size()));
            return result;
        } catch (const automaton_size_error & e) {
            throw field_error(member(path, key), e.what());
        }
    }

    void fill_array(const joint & one, form_alternative & a) {
        form_array & array     = a.array;
        size_t       n_prefix  = 0;
        bool         says_rest = false, says_min = false;
        for (const schema_node * n : one.nodes) {
            array.min = std::max(array.min, n->min_items);
            array.max = std::min(array.max, n->max_items);
            n_prefix  = std::max(n_prefix, n->prefix.size());
            says_rest |= n->rest != nullptr;
            says_min |= n->says_min_items;
        }
        const auto item = [&](size_t i) {
            std::set<std::pair<int32_t, const schema_node *>> all;
            for (const schema_node * n : one.nodes) {
                const schema_node * s = i < n->prefix.size() ? n->prefix[i] : n->rest;
                if (s) {
                    all.emplace(s->number, s);
                }
            }
            return in_order(all);
        };
        for (size_t i = 0; i < n_prefix; ++i) {
            array.prefix.push_back(form_of(item(i)));
        }
        if (says_rest || n_prefix == 0) {
            array.rest = form_of(item(n_prefix));
        } else if (!says_min) {
            array.min = std::min<uint64_t>(n_prefix, array.max);   // a tuple is written in full
        }
    }

    void fill_object(const joint & one, form_alternative & a) {
        form_object &            object = a.object;
        std::set<std::string>    required, names;
        std::vector<std::string> order;
        bool                     says_some = false, says_additional = false, closed = false;
        for (const schema_node * n : one.nodes) {
            object.min = std::max(object.min, n->min_properties);
            object.max = std::min(object.max, n->max_properties);
            required.insert(n->required.begin(), n->required.end());
            says_some |= !n->properties.empty() || !n->pattern_properties.empty();
            says_additional |= n->additional != nullptr;
            closed |= n->closed;
            for (const auto & property : n->properties) {
                if (names.insert(property.first).second) {
                    order.push_back(property.first);
                }
            }
        }
        for (const schema_node * n : one.nodes) {
            for (const std::string & name : n->required) {
                if (names.insert(name).second) {
                    order.push_back(name);
                }
            }
        }
        const std::shared_ptr<const automaton> allowed = keys_of(one);
        for (const std::string & name : order) {
            if (!allowed || allowed->accepts(name)) {
                object.properties.push_back({ name, required.count(name) > 0, form_of(value_of(one, name)) });
            } else if (required.count(name)) {
                a.types &= ~uint32_t(TYPE_OBJECT);
            }
        }
        fill_free(one, a, names, allowed, says_additional || (!says_some && !closed));
        const size_t n = object.properties.size();
        if (object.min > n + 1 && !object.free.empty()) {
            report_count(one, "minProperties");   // free keys may be duplicates
            object.free_counts_once = false;
        }
        if (object.counts() && (n + 1) * object.n_counts() > MAX_STATES) {
            report_count(one, "minProperties");
            report_count(one, "maxProperties");
            object.min = 0;
            object.max = NO_LIMIT;
        }
    }

    void report_count(const joint & one, const char * key) {
        for (const schema_node * n : one.nodes) {
            if (n->source->is_object() && n->source->contains(key)) {
                report(member(n->path, key));
            }
        }
    }

    // The keys that propertyNames accepts; null: any.
    std::shared_ptr<const automaton> keys_of(const joint & one) {
        std::shared_ptr<const automaton> all;
        for (const schema_node * n : one.nodes) {
            if (n->property_names) {
                const auto held = strings_of(*n->property_names);
                all             = all ? crossed(*all, *held, n->path, "propertyNames") : held;
            }
        }
        return all;
    }

    std::shared_ptr<const automaton> strings_of(const schema_node & n) {
        automaton refused = lengths(0, SIZE_MAX);   // refused by all alternatives
        try {
            for (const joint & one : joined({ &n })) {
                form_alternative a;
                a.types = one.types;
                if (const auto values = values_of(one)) {
                    std::set<std::string> all;
                    for (const json & value : *values) {
                        if (value.is_string()) {
                            all.insert(value.get<std::string>());
                        }
                    }
                    refused = both(refused, other_than(texts(all)));
                    continue;
                }
                fill_string(one, a);
                if (!(a.types & TYPE_STRING)) {
                    continue;
                }
                const size_t max = a.max_length == NO_LIMIT ? SIZE_MAX : size_t(a.max_length);
                refused          = both(refused, other_than(a.string ? *a.string : lengths(size_t(a.min_length), max)));
            }
            return std::make_shared<const automaton>(minimal(other_than(refused)));
        } catch (const automaton_size_error & e) {
            throw field_error(n.path, e.what());
        }
    }

    // Keys that no property names, grouped by the patterns they match.
    void fill_free(const joint & one, form_alternative & a, const std::set<std::string> & names,
        const std::shared_ptr<const automaton> & allowed, bool open) {
        std::map<std::string, std::shared_ptr<const automaton>> patterns;
        std::string                                             path = document_.field();
        for (const schema_node * n : one.nodes) {
            for (const auto & property : n->pattern_properties) {
                patterns.emplace(property.pattern, property.keys);
                path = member(n->path, "patternProperties");
            }
            path = n->additional ? member(n->path, "additionalProperties") : path;
        }
        if (patterns.size() > MAX_PATTERNS) {
            throw field_error(path, "has more than " + std::to_string(MAX_PATTERNS) + " patterns");
        }
        if (patterns.empty() && !open) {
            return;
        }
        if (patterns.empty() && names.empty() && !allowed) {
            a.object.free.push_back({ nullptr, form_of(free_value(one, {})) });
            return;
        }
        try {
            automaton rest = other_than(texts(names));
            rest           = allowed ? both(rest, *allowed) : rest;
            for (uint32_t kind = open ? 0 : 1; kind < (1u << patterns.size()); ++kind) {
                automaton             keys = rest;
                std::set<std::string> matched;
                uint32_t              bit = 1;
                for (const auto & [text, held] : patterns) {
                    keys = both(keys, kind & bit ? *held : other_than(*held));
                    if (kind & bit) {
                        matched.insert(text);
                    }
                    bit *= 2;
                }
                work(int64_t(keys.states.size()));
                if (!keys.is_empty()) {
                    a.object.free.push_back(
                        { std::make_shared<const automaton>(patterns.empty() ? keys : minimal(keys)),
                            form_of(free_value(one, matched)) });
                }
            }
        } catch (const automaton_size_error & e) {
            throw field_error(path, e.what());
        }
    }

    static conjunction free_value(const joint & one, const std::set<std::string> & matched) {
        std::set<std::pair<int32_t, const schema_node *>> all;
        for (const schema_node * n : one.nodes) {
            bool any = false;
            for (const auto & property : n->pattern_properties) {
                if (matched.count(property.pattern)) {
                    all.emplace(property.value->number, property.value);
                    any = true;
                }
            }
            if (!any && n->additional) {
                all.emplace(n->additional->number, n->additional);
            }
        }
        return in_order(all);
    }

    // ---- finite values ----

    bool is_finite(int32_t form) const { return out_.forms_[form].finite; }

    // Removes what cannot be written; false if nothing remains.
    bool keeps_some(form_alternative a) const {
        if (a.values) {
            return !a.values->empty();
        }
        if (a.types & TYPE_ARRAY) {
            uint64_t most = a.array.rest >= 0 && is_finite(a.array.rest) ? NO_LIMIT : a.array.prefix.size();
            for (size_t i = 0; i < a.array.prefix.size(); ++i) {
                if (!is_finite(a.array.prefix[i])) {
                    most = i;
                    break;
                }
            }
            if (a.array.min > std::min(most, a.array.max)) {
                a.types &= ~uint32_t(TYPE_ARRAY);
            }
        }
        if (a.types & TYPE_OBJECT && !object_ends(a.object)) {
            a.types &= ~uint32_t(TYPE_OBJECT);
        }
        return a.types != 0;
    }

    bool object_ends(const form_object & object) const {
        uint64_t n_required = 0, n_most = 0;
        for (const form_object::property & p : object.properties) {
            const bool ends = is_finite(p.value);
            if (p.required && !ends) {
                return false;
            }
            n_required += p.required;
            n_most += ends;
        }
        if (std::any_of(object.free.begin(), object.free.end(), [&](const auto & f) { return is_finite(f.value); })) {
            n_most = object.free_counts_once ? n_most + 1 : NO_LIMIT;
        }
        return n_required <= object.max && object.min <= std::min(object.max, n_most);
    }

    void find_finite() {
        for (bool changed = true; changed;) {
            changed = false;
            for (auto form = out_.forms_.rbegin(); form != out_.forms_.rend(); ++form) {
                if (!form->finite) {
                    work(int64_t(form->alternatives.size()));
                    form->finite = std::any_of(form->alternatives.begin(), form->alternatives.end(),
                        [&](const form_alternative & a) { return keeps_some(a); });
                    changed |= form->finite;
                }
            }
        }
    }

    // Removes alternatives that cannot be written.
    void prune(schema_form & form) const {
        auto & all = form.alternatives;
        for (form_alternative & a : all) {
            for (const uint32_t type : { TYPE_ARRAY, TYPE_OBJECT }) {
                form_alternative one = a;
                one.types &= type;
                if ((a.types & type) && !a.values && !keeps_some(one)) {
                    a.types &= ~type;
                }
            }
            auto & array = a.array;
            for (size_t i = 0; i < array.prefix.size(); ++i) {
                if (!is_finite(array.prefix[i])) {
                    array.prefix.resize(i);
                    array.rest = -1;
                }
            }
            array.rest        = array.rest >= 0 && is_finite(array.rest) ? array.rest : -1;
            array.max         = array.rest < 0 ? std::min<uint64_t>(array.max, array.prefix.size()) : array.max;
            auto & properties = a.object.properties;
            properties.erase(std::remove_if(properties.begin(), properties.end(),
                                 [&](const auto & p) { return !is_finite(p.value); }),
                properties.end());
            auto & free = a.object.free;
            free.erase(std::remove_if(free.begin(), free.end(), [&](const auto & f) { return !is_finite(f.value); }),
                free.end());
        }
        all.erase(std::remove_if(all.begin(), all.end(), [&](const auto & a) { return !keeps_some(a); }), all.end());
    }

    // The path of a part that makes every value infinite.
    std::string impossible(int32_t form) const {
        std::set<int32_t> seen;
        for (;;) {
            seen.insert(form);
            int32_t next = -1;
            for (const form_alternative & a : all_of(form)) {
                for (const form_object::property & p : a.object.properties) {
                    next = p.required && !is_finite(p.value) && !seen.count(p.value) ? p.value : next;
                }
                for (size_t i = 0; i < std::min<uint64_t>(a.array.min, a.array.prefix.size()); ++i) {
                    next = !is_finite(a.array.prefix[i]) && !seen.count(a.array.prefix[i]) ? a.array.prefix[i] : next;
                }
            }
            if (next < 0) {
                const conjunction & of = out_.forms_[form].of;
                return of.empty() ? document_.field() : of.front()->path;
            }
            form = next;
        }
    }

    const std::vector<form_alternative> & all_of(int32_t form) const { return out_.forms_[form].alternatives; }

    schema_forms &                       out_;
    const schema_document &              document_;
    std::map<conjunction, int32_t>       found_;
    std::vector<const schema_node *>     chain_;
    std::set<const schema_node::group *> told_;
    int64_t                              work_ = 0;
};

schema_forms::schema_forms(const json & schema, const std::string & field) : document_(schema, field) {
    within_budget(field, [&] { form_builder builder(*this); });
}

}   // namespace dflash
