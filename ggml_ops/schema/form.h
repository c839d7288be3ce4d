// The values that a schema allows, normalized: alternatives, each with plain types and what their values may be.
// Sibling keywords, allOf and references are merged here; anyOf and oneOf are expanded.

#pragma once

#include "schema/node.h"

namespace dflash {

// Schemas that apply to the same value, ordered by their numbers; empty: any value.
using conjunction = std::vector<const schema_node *>;

struct form_array {
    std::vector<int32_t> prefix;      // forms of the first items
    int32_t              rest = -1;   // form of the other items; -1: there are none
    uint64_t             min = 0, max = NO_LIMIT;
};

struct form_object {
    struct property {
        std::string name;
        bool        required;
        int32_t     value;   // form of the value
    };
    struct free_property {
        std::shared_ptr<const automaton> keys;   // null: any string
        int32_t                          value;
    };
    std::vector<property>      properties;
    std::vector<free_property> free;
    uint64_t                   min = 0, max = NO_LIMIT;
    bool                       free_counts_once = true;   // free keys count towards min only once, since they may
                                                          // repeat

    uint64_t n_required() const;
    bool     counts() const { return min > n_required() || max < (free.empty() ? properties.size() : NO_LIMIT); }
    uint64_t n_counts() const { return (min + 1) * (max < NO_LIMIT ? max + 1 : 1); }   // up to 20,000 squared
};

struct form_alternative {
    uint32_t                         types = 0;
    std::optional<std::vector<json>> values;   // if set, the only values

    std::shared_ptr<const automaton> number     = nullptr;   // null: any number of `types`
    std::shared_ptr<const automaton> string     = nullptr;   // null: any string of these lengths
    uint64_t                         min_length = 0, max_length = NO_LIMIT;
    form_array                       array  = {};
    form_object                      object = {};
};

struct schema_form {
    conjunction                   of;
    std::vector<form_alternative> alternatives;
    bool                          finite = false;   // whether some value of it is finite
};

class schema_forms {
  public:
    // Throws field_error that names the part that no grammar can express or no value satisfies.
    schema_forms(const json & schema, const std::string & field);

    const schema_form &              root() const { return forms_.front(); }
    const schema_form &              at(int32_t form) const { return forms_[form]; }
    const std::vector<std::string> & unheld() const { return unheld_; }

  private:
    friend class form_builder;

    schema_document          document_;
    std::deque<schema_form>  forms_;
    std::vector<std::string> unheld_;
};

}   // namespace dflash
