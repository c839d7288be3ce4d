#include "files/schema.h"

#include "common/json-schema-to-grammar.h"
#include "files/schema_pattern.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

namespace dflash {

namespace {

using names = std::set<std::string>;

// Keywords that constrain the values of a type; of all types: "".
const std::map<std::string, names> CONSTRAINTS = {
    { "string", { "minLength", "maxLength", "pattern", "format" } },
    { "integer", { "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf" } },
    { "number", { "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf" } },
    { "array", { "items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems", "contains",
                   "minContains", "maxContains", "unevaluatedItems" } },
    { "object",
        { "properties", "required", "additionalProperties", "patternProperties", "propertyNames", "minProperties",
            "maxProperties", "dependentRequired", "dependentSchemas", "dependencies", "unevaluatedProperties" } },
    { "", { "not", "if", "allOf", "anyOf", "oneOf", "nullable" } },
};
const names FORMATS = { "date", "time", "date-time", "uuid", "uuid1", "uuid2", "uuid3", "uuid4", "uuid5" };

bool is_constraint(const std::string & key) {
    return std::any_of(CONSTRAINTS.begin(), CONSTRAINTS.end(), [&](const auto & one) { return one.second.count(key); });
}

bool is_known_format(const json & schema) {
    return schema.contains("format") && schema.at("format").is_string() &&
           FORMATS.count(schema.at("format").get<std::string>());
}

bool has_properties(const json & schema) {
    return schema.contains("properties") ||
           (schema.contains("additionalProperties") && schema.at("additionalProperties") != true);
}

// The types of its values. A schema that does not say is of the type that its keywords are for; none: any.
names types_of(const json & schema) {
    if (schema.contains("type")) {
        const json & type = schema.at("type");
        names        all;
        for (size_t i = 0; type.is_array() && i < type.size(); ++i) {
            if (type.at(i).is_string()) {
                all.insert(type.at(i).get<std::string>());
            }
        }
        return type.is_string() ? names{ type.get<std::string>() } : all;
    }
    if (has_properties(schema) || schema.contains("allOf")) {
        return { "object" };
    }
    if (schema.contains("items") || schema.contains("prefixItems")) {
        return { "array" };
    }
    if (schema.contains("pattern") || schema.contains("minLength") || schema.contains("maxLength") ||
        is_known_format(schema)) {
        return { "string" };
    }
    return {};
}

// Goes where llama.cpp's common_chat_schema_builder goes: the same keywords decide here and there.
class schema_walk {
  public:
    schema_walk(json & root, const std::string & field, ignored_fields & ignored) :
        root_(root), field_(field), ignored_(ignored) {}

    void visit(json & schema, const std::string & path) {
        if (!schema.is_object()) {
            return;   // llama.cpp says what is wrong
        }
        unwrap(schema);
        if (schema.contains("$ref")) {
            visit_target(schema.at("$ref"));
            report(schema, path, {}, { "string", "integer", "number", "array", "object" });
            return;
        }
        for (const char * key : { "oneOf", "anyOf" }) {
            if (schema.contains(key)) {
                visit_all(schema.at(key), member(path, key));
                report(schema, path, { key }, { "string", "integer", "number", "array", "object" });
                return;
            }
        }
        if (schema.contains("const") || schema.contains("enum")) {
            return;   // the values say all
        }
        const names types = types_of(schema);
        names       used;
        for (const std::string & type : types) {
            visit_typed(schema, path, type, used);
        }
        report(schema, path, used, types);
    }

  private:
    // {"allOf": [x], "description": ...} is x.
    static void unwrap(json & schema) {
        for (int32_t depth = 0; depth < MAX_NESTING && schema.contains("allOf"); ++depth) {
            const json & all = schema.at("allOf");
            if (!all.is_array() || all.size() != 1 || !all.at(0).is_object()) {
                return;
            }
            for (const auto & entry : schema.items()) {
                const std::string & key = entry.key();
                if (key == "$ref" || key == "const" || key == "enum" || (key != "allOf" && is_constraint(key))) {
                    return;
                }
            }
            const json inner = all.at(0);
            schema           = inner;
        }
    }

    // What llama.cpp reads of a schema of this type goes into `used`.
    void visit_typed(json & schema, const std::string & path, const std::string & type, names & used) {
        if (schema.contains("allOf") && (type == "string" || (type == "object" && !has_properties(schema)))) {
            visit_all_of(schema.at("allOf"), member(path, "allOf"));
            used.insert("allOf");
        } else if (type == "object") {
            visit_object(schema, path, used);
        } else if (type == "array") {
            visit_array(schema, path, used);
        } else if (type == "string") {
            visit_string(schema, path, used);
        } else if (type == "integer") {
            used.insert({ "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum" });
        }
    }

    void visit_object(json & schema, const std::string & path, names & used) {
        used.insert({ "properties", "additionalProperties" });
        names known;
        if (schema.contains("properties") && schema.at("properties").is_object()) {
            for (const auto & entry : schema.at("properties").items()) {
                known.insert(entry.key());
            }
        }
        for (const std::string & key : known) {
            visit(schema.at("properties").at(key), member(member(path, "properties"), key));
        }
        bool all_known = true;
        if (schema.contains("required") && schema.at("required").is_array()) {
            for (size_t i = 0; i < schema.at("required").size(); ++i) {
                const json & name = schema.at("required").at(i);
                all_known &= name.is_string() && known.count(name.get<std::string>());
            }
        }
        if (all_known) {
            used.insert("required");
        }
        if (schema.contains("additionalProperties")) {
            visit(schema.at("additionalProperties"), member(path, "additionalProperties"));
        }
    }

    void visit_array(json & schema, const std::string & path, names & used) {
        const std::string key = schema.contains("items") ? "items" : "prefixItems";
        used.insert(key);
        if (schema.contains(key) && schema.at(key).is_array()) {
            visit_all(schema.at(key), member(path, key));
            return;
        }
        used.insert({ "minItems", "maxItems" });
        if (schema.contains(key)) {
            visit(schema.at(key), member(path, key));
        }
    }

    void visit_string(json & schema, const std::string & path, names & used) {
        const json * pattern = schema.contains("pattern") ? &schema.at("pattern") : nullptr;
        if (pattern && pattern->is_string() && !pattern->get<std::string>().empty()) {
            used.insert("pattern");
            if (patterns_.insert(path).second) {   // not if two ways lead here
                schema["pattern"] = rewritten(pattern->get<std::string>(), member(path, "pattern"));
            }
        } else if (is_known_format(schema)) {
            used.insert({ "pattern", "format" });
        } else {
            used.insert({ "pattern", "minLength", "maxLength" });
        }
    }

    static std::string rewritten(const std::string & pattern, const std::string & path) {
        try {
            return json_text_pattern(pattern);
        } catch (const std::invalid_argument & e) {
            throw field_error(path, std::string(e.what()) + ": no grammar can hold that, so write it another way");
        }
    }

    void visit_all(json & schemas, const std::string & path) {
        for (size_t i = 0; schemas.is_array() && i < schemas.size(); ++i) {
            visit(schemas.at(i), member(path, i));
        }
    }

    // llama.cpp joins objects and enumerations, and takes everything else for an object without properties.
    void visit_all_of(json & schemas, const std::string & path) {
        visit_all(schemas, path);
        for (size_t i = 0; schemas.is_array() && i < schemas.size(); ++i) {
            const json * one = resolved(schemas.at(i));
            const bool   fits =
                one && one->is_object() &&
                (one->empty() || one->contains("enum") || one->contains("anyOf") || one->contains("oneOf") ||
                    (!one->contains("const") && types_of(*one).count("object")));
            if (!fits) {
                throw field_error(member(path, i), "is no object and no enumeration: a grammar cannot hold several "
                                                   "schemas of other kinds at once, so write them as one");
            }
        }
    }

    // ---- $ref ----

    // As llama.cpp finds it; null if there is nothing.
    json * find(const std::string & ref) {
        if (ref.rfind("#/", 0) != 0) {
            return nullptr;
        }
        json * at = &root_;
        for (const std::string & key : keys_of(ref)) {
            const bool is_index = !key.empty() && key.size() < 9 && key.find_first_not_of("0123456789") == key.npos;
            if (at->is_object() && at->contains(key)) {
                at = &at->at(key);
            } else if (at->is_array() && is_index && std::stoul(key) < at->size()) {
                at = &at->at(size_t(std::stoul(key)));
            } else {
                return nullptr;
            }
        }
        return at;
    }

    static std::vector<std::string> keys_of(const std::string & ref) {
        std::vector<std::string> keys;
        for (size_t begin = 2; begin <= ref.size();) {
            const size_t end = std::min(ref.find('/', begin), ref.size());
            keys.push_back(ref.substr(begin, end - begin));
            begin = end + 1;
        }
        return keys;
    }

    const json * resolved(const json & schema) {
        const json * at = &schema;
        for (int32_t depth = 0; depth < MAX_NESTING && at && at->is_object() && at->contains("$ref"); ++depth) {
            at = at->at("$ref").is_string() ? find(at->at("$ref").get<std::string>()) : nullptr;
        }
        return at;
    }

    void visit_target(const json & ref) {
        const std::string name = ref.is_string() ? ref.get<std::string>() : "";
        json *            to   = find(name);
        if (!to || !visited_.insert(name).second) {
            return;
        }
        std::string path = field_;
        for (const std::string & key : keys_of(name)) {
            path = member(path, key);
        }
        visit(*to, path);
    }

    // ---- what is left ----

    void report(const json & schema, const std::string & path, const names & used, names types) {
        types.insert("");
        for (const auto & entry : schema.items()) {
            const std::string & key    = entry.key();
            const bool          is_off = entry.value() == false && (key == "nullable" || key == "uniqueItems");
            const bool          counts = std::any_of(types.begin(), types.end(), [&](const std::string & type) {
                const auto known = CONSTRAINTS.find(type);
                return known != CONSTRAINTS.end() && known->second.count(key);
            });
            if (counts && !is_off && !used.count(key)) {
                ignored_.add(member(path, key));
            }
        }
    }

    json &            root_;
    const std::string field_;
    ignored_fields &  ignored_;
    names             visited_;    // references
    names             patterns_;   // paths
};

}   // namespace

json checked_schema(const json & schema, const std::string & field, ignored_fields & ignored) {
    json checked = schema;
    schema_walk(checked, field, ignored).visit(checked, field);
    return checked;
}

std::string schema_grammar(const json & checked, const std::string & field) {
    try {
        return json_schema_to_grammar(checked);
    } catch (const std::exception & e) {
        throw field_error(field, e.what());
    }
}

}   // namespace dflash
