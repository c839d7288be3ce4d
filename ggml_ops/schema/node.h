// A JSON schema (draft 2020-12), read: each schema in it is a node with its keywords' values. What references name is
// found; what is wrong by itself is refused; what no grammar of ours holds is listed.

#pragma once

#include "base/json_fields.h"
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

// Types of values, as bits. A number is an integer or has a fraction.
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

uint32_t type_of(const json & value);

// A text that equal values share: 1 and 1.0, objects in another order.
std::string canonical(const json & value);

struct schema_node {
    int32_t      number = 0;   // in the order of reading
    std::string  path;         // of the field that a client knows
    const json * source = nullptr;

    bool     nothing = false;       // no value fits: false
    uint32_t types   = ALL_TYPES;   // what is allowed
    bool     typed   = false;       // it says so itself
    uint32_t spoken  = 0;           // types for which it has keywords

    std::optional<std::vector<json>> values      = {};   // const, enum
    std::set<std::string>            value_texts = {};   // as canonical() has them
    std::string                      values_key  = "";   // which of the two keywords

    number_limits numbers = {};

    uint64_t                         min_length = 0, max_length = NO_LIMIT;
    std::shared_ptr<const automaton> pattern = nullptr;   // of the string, or of its known format

    std::vector<const schema_node *> prefix    = {};        // of an array
    const schema_node *              rest      = nullptr;   // its other items
    uint64_t                         min_items = 0, max_items = NO_LIMIT;
    bool                             says_min_items = false;

    struct pattern_property {
        std::string                      pattern;
        std::shared_ptr<const automaton> keys;
        const schema_node *              value;
    };
    std::vector<std::pair<std::string, const schema_node *>> properties         = {};   // in the schema's order
    std::map<std::string, const schema_node *>               property_of        = {};
    std::vector<pattern_property>                            pattern_properties = {};
    const schema_node *                                      additional         = nullptr;
    const schema_node *                                      property_names     = nullptr;
    std::vector<std::string>                                 required           = {};
    uint64_t                                                 min_properties = 0, max_properties = NO_LIMIT;
    bool                                                     closed = false;   // unevaluatedProperties: false

    // what applies to the same value: all of these, and one of each group
    struct group {
        std::string                      key;   // anyOf, oneOf
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
    const std::vector<std::string> & unheld() const { return unheld_; }   // paths of keywords that no grammar holds

  private:
    friend class node_reader;

    json                                     schema_;
    std::string                              field_;
    std::deque<std::unique_ptr<schema_node>> nodes_;
    std::vector<std::string>                 unheld_;
};

}   // namespace dflash
