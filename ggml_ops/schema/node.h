// A parsed JSON schema (draft 2020-12): each subschema is a node with its keywords' values. References are resolved,
// invalid schemas are rejected, and what our grammars cannot express is listed.

#pragma once

#include "base/json_fields.h"
#include "schema/automaton.h"
#include "schema/decimal.h"

#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace dflash {

// Value types as bits. A number is an integer or has a fraction.
enum value_type : uint32_t {
    TYPE_NULL     = 1,
    TYPE_BOOLEAN  = 2,
    TYPE_INTEGER  = 4,
    TYPE_FRACTION = 8,
    TYPE_STRING   = 16,
    TYPE_ARRAY    = 32,
    TYPE_OBJECT   = 64,
    TYPE_NUMBER   = TYPE_INTEGER | TYPE_FRACTION,
    ALL_TYPES     = 127,
};

constexpr uint64_t NO_LIMIT = std::numeric_limits<uint64_t>::max();

// Calls `read`, which makes the automata of a schema. That they are too large is an error of its field.
template <class F> void within_budget(const std::string & field, F && read) {
    const automaton_budget budget;
    try {
        read();
    } catch (const automaton_size_error & e) {
        throw field_error(field, e.what());
    }
}

uint32_t type_of(const json & value);

// A text that is the same for equal values: 1 and 1.0, or objects in different order.
std::string canonical(const json & value);

struct schema_node {
    int32_t      number = 0;   // in reading order
    std::string  path;         // below the field of the request
    const json * source = nullptr;

    bool     nothing = false;       // the schema `false`: no value matches
    uint32_t types   = ALL_TYPES;   // the allowed types
    bool     typed   = false;       // has a `type` keyword
    uint32_t spoken  = 0;           // types that its keywords apply to

    std::optional<std::vector<json>> values      = {};   // of const or enum
    std::set<std::string>            value_texts = {};   // their canonical() texts
    std::string                      values_key  = "";   // which of the two keywords

    number_limits numbers = {};

    uint64_t                         min_length = 0, max_length = NO_LIMIT;
    std::shared_ptr<const automaton> pattern = nullptr;   // of strings: from `pattern` or a known format

    std::vector<const schema_node *> prefix    = {};        // of arrays: the first items
    const schema_node *              rest      = nullptr;   // of arrays: the other items
    uint64_t                         min_items = 0, max_items = NO_LIMIT;
    bool                             says_min_items = false;

    struct pattern_property {
        std::string                      pattern;
        std::shared_ptr<const automaton> keys;
        const schema_node *              value;
    };
    std::vector<std::pair<std::string, const schema_node *>> properties         = {};   // in schema order
    std::map<std::string, const schema_node *>               property_of        = {};
    std::vector<pattern_property>                            pattern_properties = {};
    const schema_node *                                      additional         = nullptr;
    const schema_node *                                      property_names     = nullptr;
    std::vector<std::string>                                 required           = {};
    uint64_t                                                 min_properties = 0, max_properties = NO_LIMIT;
    bool                                                     closed = false;   // unevaluatedProperties: false

    // parts that apply to the same value: all of these, and one of each group
    struct group {
        std::string                      key;   // anyOf or oneOf
        std::vector<const schema_node *> options;
    };
    std::vector<const schema_node *> all_of = {};
    std::vector<group>               groups = {};
};

class schema_document {
  public:
    // Throws field_error that names the keyword by its path below `field`.
    schema_document(const json & schema, const std::string & field);

    const schema_node &              root() const { return *nodes_.front(); }
    const std::string &              field() const { return field_; }
    const std::vector<std::string> & unheld() const {
        return unheld_;
    }   // paths of keywords that the grammar does not
        // enforce

  private:
    friend class node_reader;

    json                                     schema_;
    std::string                              field_;
    std::deque<std::unique_ptr<schema_node>> nodes_;
    std::vector<std::string>                 unheld_;
};

}   // namespace dflash
