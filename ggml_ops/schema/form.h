// What a schema lets through, sorted: alternatives, each of plain types with what their values may be. Keywords beside
// each other, allOf and references are joined here; anyOf and oneOf multiply.

#pragma once

#include "schema/node.h"

namespace dflash {

// Schemas that hold at once, in the order of their numbers; none: any value.
using conjunction = std::vector<const schema_node *>;

struct form_array {
    std::vector<int32_t> prefix;      // forms
    int32_t              rest = -1;   // of the other items; -1: there are none
    uint64_t             min = 0, max = NO_LIMIT;
};

struct form_object {
    struct property {
        std::string name;
        bool        required;
        int32_t     value;   // form
    };
    struct free_property {
        std::shared_ptr<const automaton> keys;   // null: any string
        int32_t                          value;
    };
    std::vector<property>      properties;
    std::vector<free_property> free;
    uint64_t                   min = 0, max = NO_LIMIT;
    bool                       free_counts_once = true;   // towards min: a free key may be written again

    uint64_t n_required() const;
    bool     counts() const { return min > n_required() || max < (free.empty() ? properties.size() : NO_LIMIT); }
    uint64_t n_counts() const { return (min + 1) * (max < NO_LIMIT ? max + 1 : 1); }   // up to 20,000 squared
};

struct form_alternative {
    uint32_t                         types = 0;
    std::optional<std::vector<json>> values;   // nothing else then

    std::shared_ptr<const automaton> number     = nullptr;   // null: any, of `types`
    std::shared_ptr<const automaton> string     = nullptr;   // null: any of these lengths
    uint64_t                         min_length = 0, max_length = NO_LIMIT;
    form_array                       array  = {};
    form_object                      object = {};
};

struct schema_form {
    conjunction                   of;
    std::vector<form_alternative> alternatives;
    bool                          finite = false;   // some value of it ends
};

class schema_forms {
  public:
    // Throws field_error that names the part which no grammar can hold, or that no value fits.
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
