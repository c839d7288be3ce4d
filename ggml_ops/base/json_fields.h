// Reads untrusted JSON. Every rejection is a field_error that names the field and says what it must be.

#pragma once

#include "base/json.h"
#include "base/text.h"

#include <cstdint>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace dflash {

// what(): "field 'messages[2].role': must be ..."
struct field_error : std::invalid_argument {
    template <class... Parts>
    field_error(const std::string & field, const Parts &... why) :
        std::invalid_argument(concat("field '", field, "': ", why...)) {}
};

// Throws it; the parts are evaluated in any case.
template <class... Parts> void refuse_field_if(bool wrong, const std::string & field, const Parts &... why) {
    if (wrong) {
        throw field_error(field, why...);
    }
}

// llama.cpp walks JSON recursively (schemas, templates, dump), so deeper input would overflow the stack.
constexpr int32_t MAX_NESTING = 128;

// Throws field_error if `text`, parsed as JSON, would nest deeper than MAX_NESTING.
void check_nesting(const std::string & text, const std::string & field);

// `field` names the text in errors.
json parse_json(const std::string & text, const std::string & field);

// "a.key", or "key" if `field` is empty. Inline, since llama-common calls it too (schema/).
inline std::string member(const std::string & field, const std::string & key) {
    return field.empty() ? key : field + "." + key;
}
inline std::string member(const std::string & field, size_t index) { return field + "[" + std::to_string(index) + "]"; }

bool         as_bool(const json & value, const std::string & field);
std::string  as_string(const json & value, const std::string & field);
double       as_number(const json & value, const std::string & field, double min, double max);
int64_t      as_integer(const json & value, const std::string & field, int64_t min, int64_t max);
const json & as_array(const json & value, const std::string & field);
const json & as_object(const json & value, const std::string & field);

// Calls f(element, its name) for each element of an array. Not for other values.
template <class F> void each_element(const json & array, const std::string & field, F && f) {
    for (size_t i = 0; i < array.size(); ++i) {
        f(array.at(i), member(field, i));
    }
}

// The members of an object, each to be taken once. A null member counts as absent.
class field_reader {
  public:
    field_reader(const json & object, std::string field);

    std::string  name(const std::string & key) const { return member(field_, key); }
    const json * take(const std::string & key);   // nullptr if absent
    const json & need(const std::string & key);   // throws if absent
    std::string  need_string(const std::string & key) { return as_string(need(key), name(key)); }

    void read(const std::string & key, bool & to);
    void read(const std::string & key, std::string & to);
    void read(const std::string & key, float & to, double min, double max);
    void read(const std::string & key, int32_t & to, int64_t min, int64_t max);
    // each_element() of an array of at most `most` elements. False: it is absent.
    template <class F> bool read_each(const std::string & key, size_t most, F && f) {
        const json * value = take(key);
        if (value && as_array(*value, name(key)).size() > most) {
            throw field_error(name(key), "has more than ", most, " entries");
        }
        if (value) {
            each_element(*value, name(key), f);
        }
        return value != nullptr;
    }
    template <class F> bool read_each(const std::string & key, F && f) { return read_each(key, SIZE_MAX, f); }

    void                     finish() const;    // throws if a member was not taken
    std::vector<std::string> untaken() const;   // names of the other members, except nulls

  private:
    const json &          object_;
    std::string           field_;
    std::set<std::string> taken_;
};

}   // namespace dflash
