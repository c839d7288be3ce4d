#include "schema/node.h"

#include "schema/pattern.h"

#include <algorithm>

namespace dflash {

namespace {

constexpr uint64_t MAX_REPETITIONS = MAX_STATES - 1;   // each becomes several elements of the grammar

// Keywords by the type that they apply to; all others apply to every type. Known keywords that are not read below are
// reported.
const std::map<uint32_t, std::set<std::string>> KEYWORDS = {
    { TYPE_STRING, { "minLength", "maxLength", "pattern" } },
    { TYPE_NUMBER, { "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf" } },
    { TYPE_ARRAY, { "items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems", "contains",
                      "unevaluatedItems" } },
    { TYPE_OBJECT,
        { "properties", "required", "additionalProperties", "patternProperties", "propertyNames", "minProperties",
            "maxProperties", "dependentRequired", "dependentSchemas", "dependencies", "unevaluatedProperties" } },
};

// 0: it applies to every type.
uint32_t type_of(const std::string & keyword) {
    for (const auto & [type, keywords] : KEYWORDS) {
        if (keywords.count(keyword)) {
            return type;
        }
    }
    return 0;
}

// Keywords that the grammar never enforces.
const std::set<std::string> UNHELD = { "not", "if", "nullable", "uniqueItems", "contains", "dependentRequired",
    "dependentSchemas", "dependencies", "$dynamicRef", "$recursiveRef" };

const std::map<std::string, uint32_t> TYPES = { { "null", TYPE_NULL }, { "boolean", TYPE_BOOLEAN },
    { "integer", TYPE_INTEGER }, { "number", TYPE_NUMBER }, { "string", TYPE_STRING }, { "array", TYPE_ARRAY },
    { "object", TYPE_OBJECT } };

// RFC 3339, in upper case, without leap seconds, with valid days only.
const std::string DATE = "((\\d{4}-((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)|"
                         "02-(0[1-9]|1\\d|2[0-8])))|((\\d\\d(0[48]|[2468][048]|[13579][26])|"
                         "([02468][048]|[13579][26])00)-02-29))";
const std::string TIME = "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,9})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)";
const std::string UUID = "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}";

const std::map<std::string, std::string> FORMATS = { { "date", DATE }, { "time", TIME },
    { "date-time", DATE + "T" + TIME }, { "uuid", UUID }, { "uuid1", UUID }, { "uuid2", UUID }, { "uuid3", UUID },
    { "uuid4", UUID }, { "uuid5", UUID } };

std::string percent_decoded(const std::string & text) {
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
        const auto is_hex = [&](size_t at) { return at < text.size() && std::isxdigit((unsigned char) text[at]); };
        if (text[i] == '%' && is_hex(i + 1) && is_hex(i + 2)) {
            out += char(std::stoi(text.substr(i + 1, 2), nullptr, 16));
            i += 2;
        } else {
            out += text[i];
        }
    }
    return out;
}

// Splits a JSON pointer into keys: "/a~1b/c" gives a/b and c.
std::vector<std::string> pointer_keys(const std::string & pointer) {
    std::vector<std::string> keys;
    for (size_t begin = 1; begin <= pointer.size();) {
        const size_t end = std::min(pointer.find('/', begin), pointer.size());
        std::string  key;
        for (size_t i = begin; i < end; ++i) {
            const bool escaped = pointer[i] == '~' && i + 1 < end && (pointer[i + 1] == '0' || pointer[i + 1] == '1');
            key += escaped ? (pointer[i + 1] == '0' ? '~' : '/') : pointer[i];
            i += escaped;
        }
        keys.push_back(key);
        begin = end + 1;
    }
    return keys;
}

}   // namespace

uint32_t type_of(const json & value) {
    if (value.is_null()) {
        return TYPE_NULL;
    }
    if (value.is_boolean()) {
        return TYPE_BOOLEAN;
    }
    if (value.is_number()) {
        return as_decimal(value.dump()).fraction.empty() ? TYPE_INTEGER : TYPE_FRACTION;
    }
    return value.is_string() ? TYPE_STRING : value.is_array() ? TYPE_ARRAY : TYPE_OBJECT;
}

std::string canonical(const json & value) {
    if (value.is_number()) {
        const decimal d = as_decimal(value.dump());
        return (d.negative ? "-" : "") + (d.whole.empty() ? "0" : d.whole) +
               (d.fraction.empty() ? "" : "." + d.fraction);
    }
    std::string text;
    if (value.is_array()) {
        for (size_t i = 0; i < value.size(); ++i) {
            text += canonical(value.at(i)) + ",";
        }
        return "[" + text + "]";
    }
    if (value.is_object()) {
        std::map<std::string, std::string> members;
        for (const auto & entry : value.items()) {
            members.emplace(json(entry.key()).dump(), canonical(entry.value()));
        }
        for (const auto & [key, one] : members) {
            text.append(key).append(":").append(one).append(",");
        }
        return "{" + text + "}";
    }
    return value.dump();
}

class node_reader {
  public:
    explicit node_reader(schema_document & document) : document_(document) {
        find_anchors(document_.schema_, &document_.schema_, document_.field_, false);
        node_at(document_.schema_, document_.field_);
        for (; !open_.empty(); open_.pop_front()) {
            const auto [schema, node] = open_.front();
            read(*schema, *node);
        }
    }

  private:
    // ---- where schemas are ----

    const schema_node * node_at(const json & schema, const std::string & path) {
        const auto [place, added] = known_.emplace(&schema, nullptr);
        if (added) {
            document_.nodes_.push_back(std::make_unique<schema_node>());
            schema_node & node = *document_.nodes_.back();
            node.number        = int32_t(document_.nodes_.size()) - 1;
            node.path          = path;
            place->second      = &node;
            open_.emplace_back(&schema, &node);
        }
        return place->second;
    }

    // Every $id starts a new document with its own references and anchors. `is_map`: the keys of `schema` are names,
    // not keywords.
    void find_anchors(const json & schema, const json * base, const std::string & path, bool is_map) {
        static const std::set<std::string> maps = { "properties", "patternProperties", "$defs", "definitions",
            "dependentSchemas" };
        if (schema.is_array()) {
            each_element(schema, path,
                [&](const json & one, const std::string & where) { find_anchors(one, base, where, false); });
        }
        if (!schema.is_object()) {
            return;
        }
        if (!is_map) {
            base = read_names(schema, base);
        }
        bases_[&schema] = base;
        paths_[&schema] = path;
        for (const auto & entry : schema.items()) {
            if (is_map || (entry.key() != "const" && entry.key() != "enum")) {
                find_anchors(entry.value(), base, member(path, entry.key()), !is_map && maps.count(entry.key()));
            }
        }
    }

    const json * read_names(const json & schema, const json * base) {
        if (schema.contains("$id") && schema.at("$id").is_string()) {
            const std::string id = schema.at("$id").get<std::string>();
            base                 = id.empty() || id[0] == '#' ? base : &schema;
            ids_.emplace(id.substr(0, id.find('#')), &schema);
        }
        for (const char * key : { "$anchor", "$dynamicAnchor" }) {
            if (schema.contains(key) && schema.at(key).is_string()) {
                anchors_.emplace(std::make_pair(base, schema.at(key).get<std::string>()), &schema);
            }
        }
        return base;
    }

    const schema_node * target(const json & schema, const std::string & path) {
        const std::string ref  = string_of(schema.at("$ref"), path);
        const size_t      hash = std::min(ref.find('#'), ref.size());
        const json *      at   = bases_.at(&schema);
        if (hash > 0) {
            const auto id = ids_.find(ref.substr(0, hash));
            if (id == ids_.end()) {
                throw field_error(path, "is an unsupported $ref, '" + ref.substr(0, 80) +
                                            "': only what is in the same schema can be referred to, as #/$defs/name");
            }
            at = id->second;
        }
        const std::string fragment = hash < ref.size() ? percent_decoded(ref.substr(hash + 1)) : "";
        std::string       where    = paths_.at(at);
        if (!fragment.empty() && fragment[0] != '/') {
            const auto anchor = anchors_.find({ at, fragment });
            if (anchor == anchors_.end()) {
                throw field_error(path, "names an $anchor that is not there: '" + fragment.substr(0, 80) + "'");
            }
            return node_at(*anchor->second, paths_.at(anchor->second));
        }
        for (const std::string & key : pointer_keys(fragment)) {
            const bool is_index = !key.empty() && key.size() < 9 && key.find_first_not_of("0123456789") == key.npos;
            if (at->is_object() && at->contains(key)) {
                at    = &at->at(key);
                where = member(where, key);
            } else if (at->is_array() && is_index && std::stoul(key) < at->size()) {
                at    = &at->at(size_t(std::stoul(key)));
                where = member(where, size_t(std::stoul(key)));
            } else {
                throw field_error(path, "cannot be resolved: there is no '" + key.substr(0, 80) + "'");
            }
        }
        if (at->is_object() && !bases_.count(at)) {
            throw field_error(path, "refers to a value, not to a schema");
        }
        return node_at(*at, where);
    }

    // ---- values of keywords ----

    static std::string string_of(const json & value, const std::string & path) {
        return value.is_string() ? value.get<std::string>() : throw field_error(path, "must be a string");
    }

    static const json & object_of(const json & value, const std::string & path) {
        return value.is_object() ? value : throw field_error(path, "must be an object");
    }

    // The value of a keyword, null if it is absent.
    static const json * find(const json & schema, const char * key) {
        return schema.contains(key) ? &schema.at(key) : nullptr;
    }

    // The schema of a keyword, null if it is absent.
    const schema_node * part(const json & schema, const schema_node & n, const char * key) {
        const json * value = find(schema, key);
        return value ? node_at(*value, member(n.path, key)) : nullptr;
    }

    // Notes a keyword that the grammar does not enforce.
    void leave_out(const schema_node & n, const std::string & key) { document_.unheld_.push_back(member(n.path, key)); }

    static uint64_t count(const json & value, const std::string & path) {
        const bool whole = value.is_number() && as_decimal(value.dump()).fraction.empty();
        if (!whole || value.get<double>() < 0) {
            throw field_error(path, "must be a non-negative integer");
        }
        return value.get<double>() >= 9e18 ? NO_LIMIT - 1 : uint64_t(value.get<double>());
    }

    static decimal number(const json & value, const std::string & path) {
        if (!value.is_number()) {
            throw field_error(path, "must be a number");
        }
        try {
            return as_decimal(value.dump());
        } catch (const std::invalid_argument & e) {
            throw field_error(path, e.what());
        }
    }

    static std::shared_ptr<const automaton> pattern(const std::string & text, const std::string & path) {
        try {
            return std::make_shared<const automaton>(matching(text));
        } catch (const std::invalid_argument & e) {
            throw field_error(path, std::string(e.what()) + ": no grammar can hold that, so write it another way");
        } catch (const automaton_size_error & e) {
            throw field_error(path, std::string(e.what()) + ": write it with fewer repetitions");
        }
    }

    std::vector<const schema_node *> schemas(const json & value, const std::string & path, bool may_be_empty) {
        if (!value.is_array() || (value.empty() && !may_be_empty)) {
            throw field_error(path, "must be a non-empty array of schemas");
        }
        std::vector<const schema_node *> all;
        each_element(
            value, path, [&](const json & one, const std::string & where) { all.push_back(node_at(one, where)); });
        return all;
    }

    // ---- a schema ----

    void read(const json & schema, schema_node & n) {
        n.source = &schema;
        if (schema.is_boolean()) {
            n.nothing = !schema.get<bool>();
            return;
        }
        if (!schema.is_object()) {
            throw field_error(n.path, "must be a schema: an object, true or false");
        }
        for (const auto & entry : schema.items()) {
            n.spoken |= type_of(entry.key());
        }
        read_types(schema, n);
        report(schema, n);
        read_values(schema, n);
        read_numbers(schema, n);
        read_string(schema, n);
        read_array(schema, n);
        read_object(schema, n);
        read_applicators(schema, n);
        check_values(n);
    }

    // Reports keywords for its types that the grammar does not enforce.
    void report(const json & schema, const schema_node & n) {
        for (const auto & entry : schema.items()) {
            const std::string name = entry.key();
            const uint32_t    type = type_of(name);
            const bool        is_off =
                (name == "if" && only_if(schema)) ||
                ((name == "nullable" || name == "uniqueItems" || name == "not") && entry.value() == false);
            if (UNHELD.count(name) && !is_off && (type == 0 || (type & n.types))) {
                leave_out(n, name);
            }
        }
    }

    static bool only_if(const json & schema) { return !schema.contains("then") && !schema.contains("else"); }

    static void read_types(const json & schema, schema_node & n) {
        const json * value = find(schema, "type");
        if (!value) {
            return;
        }
        const std::string path = member(n.path, "type");
        n.typed                = true;
        n.types                = 0;
        const auto add         = [&](const json & one, const std::string & where) {
            const auto found = one.is_string() ? TYPES.find(one.get<std::string>()) : TYPES.end();
            if (found == TYPES.end()) {
                throw field_error(where, "must be null, boolean, integer, number, string, array or object");
            }
            n.types |= found->second;
        };
        if (!value->is_array()) {
            add(*value, path);
        } else if (value->empty()) {
            throw field_error(path, "is empty");
        } else {
            each_element(*value, path, add);
        }
    }

    static void read_values(const json & schema, schema_node & n) {
        for (const char * key : { "enum", "const" }) {
            const json * value = find(schema, key);
            if (!value) {
                continue;
            }
            std::vector<json> all;
            if (std::string(key) == "const") {
                all.push_back(*value);
            } else if (!value->is_array() || value->empty()) {
                throw field_error(member(n.path, key), "must be a non-empty array");
            } else {
                each_element(*value, key, [&](const json & one, const std::string &) { all.push_back(one); });
            }
            const bool                  both   = n.values.has_value();
            const std::set<std::string> before = n.value_texts;
            n.values_key                       = key;
            n.values.emplace();
            n.value_texts.clear();
            for (const json & one : all) {
                const std::string text = canonical(one);
                if ((!both || before.count(text)) && n.value_texts.insert(text).second) {
                    n.values->push_back(one);
                }
            }
        }
        if (n.values) {
            uint32_t types = 0;
            for (const json & value : *n.values) {
                types |= type_of(value);
            }
            n.types &= types;
            n.typed = true;
        }
    }

    void read_numbers(const json & schema, schema_node & n) {
        const auto bound = [&](const char * key, bool exclusive, std::optional<number_limits::bound> & to,
                               int32_t sign) {
            const json * value = find(schema, key);
            if (!value) {
                return;
            }
            if (exclusive && value->is_boolean()) {   // draft 4's exclusiveMinimum: true
                if (to) {
                    to->exclusive = value->get<bool>();
                }
                return;
            }
            const number_limits::bound b     = { number(*value, member(n.path, key)), exclusive };
            const int32_t              order = to ? sign * compare(b.value, to->value) : 1;
            if (order > 0 || (order == 0 && exclusive)) {
                to = b;
            }
        };
        bound("minimum", false, n.numbers.low, 1);
        bound("exclusiveMinimum", true, n.numbers.low, 1);
        bound("maximum", false, n.numbers.high, -1);
        bound("exclusiveMaximum", true, n.numbers.high, -1);
        if (n.numbers.low && n.numbers.high) {
            const int32_t order = compare(n.numbers.low->value, n.numbers.high->value);
            if (order > 0 || (order == 0 && (n.numbers.low->exclusive || n.numbers.high->exclusive))) {
                throw field_error(member(n.path, schema.contains("minimum") ? "minimum" : "exclusiveMinimum"),
                    "leaves no number below the maximum");
            }
        }
        if (const json * divisor = find(schema, "multipleOf")) {
            const std::string path = member(n.path, "multipleOf");
            const decimal     d    = number(*divisor, path);
            if (d.negative || d.is_zero()) {
                throw field_error(path, "must be above 0");
            }
            number_limits alone;
            alone.divisors = { d };
            try {
                numbers(alone);
                n.numbers.divisors = { d };
            } catch (const std::exception &) {
                document_.unheld_.push_back(path);
            }
        }
    }

    // A lower limit above MAX_REPETITIONS is rejected, an upper one is dropped.
    void read_counts(
        const json & schema, const schema_node & n, const std::string & what, uint64_t & min, uint64_t & max) {
        const std::string low = "min" + what, high = "max" + what;
        min = schema.contains(low) ? count(schema.at(low), member(n.path, low)) : min;
        max = schema.contains(high) ? count(schema.at(high), member(n.path, high)) : max;
        if (min > max) {
            throw field_error(member(n.path, low), "is larger than ", high);
        }
        if (min > MAX_REPETITIONS) {
            throw field_error(member(n.path, low), "is above ", MAX_REPETITIONS, ": no grammar holds so many");
        }
        if (max != NO_LIMIT && max > MAX_REPETITIONS) {
            leave_out(n, high);
            max = NO_LIMIT;
        }
    }

    void read_string(const json & schema, schema_node & n) {
        read_counts(schema, n, "Length", n.min_length, n.max_length);
        if (const json * text = find(schema, "pattern")) {
            const std::string path = member(n.path, "pattern");
            n.pattern              = pattern(string_of(*text, path), path);
            if (n.pattern->is_empty()) {
                throw field_error(path, "matches no string");
            }
        }
        const json * name = find(schema, "format");
        if (!name) {
            return;
        }
        const std::string path   = member(n.path, "format");
        const auto        format = FORMATS.find(string_of(*name, path));
        if (format == FORMATS.end()) {
            if ((n.types & TYPE_STRING) && !n.values) {   // not a format of numbers, such as int32
                leave_out(n, "format");
            }
            return;
        }
        n.spoken |= TYPE_STRING;
        const std::shared_ptr<const automaton> held = pattern("^(" + format->second + ")$", path);
        n.pattern = n.pattern ? std::make_shared<const automaton>(both(*n.pattern, *held)) : held;
        if (n.pattern->is_empty()) {
            throw field_error(path, "leaves no string that the pattern matches");
        }
    }

    void read_array(const json & schema, schema_node & n) {
        read_counts(schema, n, "Items", n.min_items, n.max_items);
        n.says_min_items   = schema.contains("minItems");
        const char * tuple = nullptr;
        for (const char * key : { "items", "prefixItems" }) {   // items: before draft 2020-12
            const json * value = find(schema, key);
            tuple              = value && value->is_array() ? key : tuple;
        }
        if (tuple) {
            n.prefix = schemas(schema.at(tuple), member(n.path, tuple), true);
        } else if (schema.contains("prefixItems")) {
            throw field_error(member(n.path, "prefixItems"), "must be a non-empty array of schemas");
        }
        const bool   old  = tuple && std::string(tuple) == "items";
        const char * rest = old ? "additionalItems" : "items";
        n.rest            = part(schema, n, rest);
        if (schema.contains("unevaluatedItems")) {
            if (!n.rest && plain(schema)) {
                n.rest = part(schema, n, "unevaluatedItems");
            } else if (schema.at("unevaluatedItems") != true) {
                leave_out(n, "unevaluatedItems");
            }
        }
        if (!old && schema.contains("additionalItems") && schema.at("additionalItems") != true && tuple) {
            leave_out(n, "additionalItems");
        }
    }

    // Whether it has no parts that apply to the same value.
    static bool plain(const json & schema) {
        const auto has = [&](const char * key) { return schema.contains(key); };
        return !has("allOf") && !has("anyOf") && !has("oneOf") && !has("$ref") && !has("if") && !has("not") &&
               !has("dependentSchemas") && !has("$dynamicRef") && !has("contains");
    }

    void read_object(const json & schema, schema_node & n) {
        read_counts(schema, n, "Properties", n.min_properties, n.max_properties);
        if (const json * all = find(schema, "properties")) {
            const std::string path = member(n.path, "properties");
            for (const auto & entry : object_of(*all, path).items()) {
                n.properties.emplace_back(entry.key(), node_at(entry.value(), member(path, entry.key())));
                n.property_of.emplace(n.properties.back());
            }
        }
        if (const json * all = find(schema, "patternProperties")) {
            const std::string path = member(n.path, "patternProperties");
            for (const auto & entry : object_of(*all, path).items()) {
                const std::string where = member(path, entry.key());
                n.pattern_properties.push_back(
                    { entry.key(), pattern(entry.key(), where), node_at(entry.value(), where) });
            }
        }
        n.additional     = part(schema, n, "additionalProperties");
        n.property_names = part(schema, n, "propertyNames");
        if (schema.contains("required")) {
            read_required(schema.at("required"), member(n.path, "required"), n);
        }
        if (!schema.contains("unevaluatedProperties") || schema.at("unevaluatedProperties") == true) {
            return;
        }
        if (plain(schema) && !n.additional) {
            n.additional = part(schema, n, "unevaluatedProperties");
        } else if (schema.at("unevaluatedProperties") == false && &n == document_.nodes_.front().get()) {
            n.closed = true;
        } else {
            leave_out(n, "unevaluatedProperties");
        }
    }

    static void read_required(const json & value, const std::string & path, schema_node & n) {
        if (value.is_boolean()) {
            return;   // draft 3: in a property
        }
        if (!value.is_array()) {
            throw field_error(path, "must be an array of names");
        }
        each_element(value, path,
            [&](const json & one, const std::string & where) { n.required.push_back(string_of(one, where)); });
    }

    void read_applicators(const json & schema, schema_node & n) {
        if (schema.contains("$ref")) {
            n.all_of.push_back(target(schema, member(n.path, "$ref")));
        }
        if (schema.contains("allOf")) {
            for (const schema_node * one : schemas(schema.at("allOf"), member(n.path, "allOf"), false)) {
                n.all_of.push_back(one);
            }
        }
        for (const char * key : { "anyOf", "oneOf" }) {
            if (schema.contains(key)) {
                n.groups.push_back({ key, schemas(schema.at(key), member(n.path, key), false) });
            }
        }
    }

    static void check_values(const schema_node & n) {
        if (n.values && n.values->empty()) {
            throw field_error(member(n.path, n.values_key), "is not among the values of enum");
        }
        if (n.values && n.types == 0) {
            throw field_error(member(n.path, n.values_key), "has no value of the type beside it");
        }
    }

    schema_document &                                            document_;
    std::map<const json *, const schema_node *>                  known_;
    std::deque<std::pair<const json *, schema_node *>>           open_;
    std::map<std::string, const json *>                          ids_;
    std::map<std::pair<const json *, std::string>, const json *> anchors_;
    std::map<const json *, const json *>                         bases_;   // for every object in the schema
    std::map<const json *, std::string>                          paths_;
};

schema_document::schema_document(const json & schema, const std::string & field) : schema_(schema), field_(field) {
    within_budget(field, [&] { node_reader reader(*this); });
}

}   // namespace dflash
