// Writes GBNF for the values that a schema allows.
//
// JSON as models write it: keys in schema order, unknown keys after them; between tokens nothing, a space, or up to two
// newlines with up to 20 blanks; characters of strings written literally wherever a pattern, format or known key
// defines them; numbers with up to 16 digits before and after the point, with an exponent unless bounds or divisors
// apply.

#pragma once

#include "schema/form.h"

#include <map>
#include <string>

namespace dflash {

std::string gbnf_literal(const std::string & text);   // in quotation marks

// Rules by name. Rules of schemas are named schema-1, schema-2, ... or after their kind.
class grammar_rules {
  public:
    grammar_rules();

    // Throws std::invalid_argument: all bodies together are too long.
    void        set(const std::string & name, const std::string & body);
    std::string reserve() { return "schema-" + std::to_string(++n_); }
    std::string add(const std::string & body);                                    // under a generated name
    std::string known(const std::string & name);                                  // schema-string, schema-value, ...
    std::string repeated(const std::string & rule, uint64_t min, uint64_t max);   // an expression; max may be NO_LIMIT
    std::string text() const;

  private:
    std::map<std::string, std::string> rules_;
    std::map<std::string, std::string> names_;   // names by body
    int64_t                            n_       = 0;
    size_t                             n_bytes_ = 0;   // of all bodies
};

class schema_writer {
  public:
    schema_writer(grammar_rules & rules, const schema_forms & forms) : rules_(rules), forms_(forms) {}

    std::string rule_of(int32_t form);                                                 // returns its name
    std::string rule_of(const form_alternative & alternative, uint32_t types);         // limited to these types
    std::string rule_of(const automaton & texts) { return text_rule(texts, false); }   // unquoted

  private:
    void        write_open();
    std::string choices(const form_alternative & a, uint32_t types);
    std::string name_of(int32_t form);
    std::string text_rule(const automaton & texts, bool as_string);
    std::string string_of(const form_alternative & a);
    std::string array_of(const form_array & array);
    std::string object_of(const form_object & object);
    std::string literal_of(const json & value) const;
    bool        is_any(int32_t form) const;

    grammar_rules &                          rules_;
    const schema_forms &                     forms_;
    std::map<int32_t, std::string>           names_;
    std::vector<int32_t>                     open_;
    std::map<const automaton *, std::string> texts_;
};

}   // namespace dflash
