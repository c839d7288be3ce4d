#include "api/unenforced.h"

#include "schema/writer.h"

#include <set>

namespace dflash {

namespace {

// Adds the keywords of a schema that say more than its type.
void add_keywords(const json & schema, const std::string & path, ignored_fields & ignored) {
    static const std::set<std::string> limits = { "enum", "const", "pattern", "format", "minLength", "maxLength",
        "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems",
        "prefixItems", "minProperties", "maxProperties", "propertyNames", "patternProperties", "required", "$ref" };
    if (!schema.is_object()) {
        return;
    }
    for (const auto & entry : schema.items()) {
        const std::string where = member(path, entry.key());
        if (limits.count(entry.key())) {
            ignored.add(where);
        } else if (entry.key() == "items") {
            add_keywords(entry.value(), where, ignored);
        } else if (entry.key() == "properties" && entry.value().is_object()) {
            for (const auto & property : entry.value().items()) {
                add_keywords(property.value(), member(where, property.key()), ignored);
            }
        } else if (entry.key() == "anyOf" || entry.key() == "oneOf" || entry.key() == "allOf") {
            for (size_t i = 0; entry.value().is_array() && i < entry.value().size(); ++i) {
                add_keywords(entry.value().at(i), member(where, i), ignored);
            }
        }
    }
}

// If a format writes values in its own way, such as strings without quotation marks, the grammar enforces only the
// names, or not even those.
void add_unwritten(const common_chat_tool & tool, const std::string & path, const std::string & grammar,
    const schema_witness & witness, ignored_fields & ignored) {
    const json schema = json::parse(tool.parameters);
    if (schema.empty() || witness.written.count(schema.dump())) {
        return;
    }
    for (const char * key : { "anyOf", "oneOf", "enum", "const", "minProperties", "maxProperties" }) {
        if (schema.contains(key)) {
            ignored.add(member(path, key));
        }
    }
    if (!schema.contains("properties")) {
        return;
    }
    for (const auto & property : schema.at("properties").items()) {
        const std::string literal = gbnf_literal(property.key());
        if (grammar.find(literal.substr(1, literal.size() - 2)) == std::string::npos) {
            ignored.add(path);   // neither name nor type
            return;
        }
        if (!witness.written.count(property.value().dump())) {
            add_keywords(property.value(), member(member(path, "properties"), property.key()), ignored);
        }
    }
}

}   // namespace

void add_unenforced(
    const chat_tools & tools, const std::string & grammar, const schema_witness & witness, ignored_fields & ignored) {
    for (const common_chat_tool & tool : tools) {
        add_unwritten(tool, "tools[].function.parameters", grammar, witness, ignored);
    }
}

}   // namespace dflash
