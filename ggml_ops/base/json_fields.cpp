#include "base/json_fields.h"

#include <cmath>
#include <sstream>

namespace dflash {

namespace {

// A value as shown in an error: always short.
std::string shown(const json & value) {
    if (value.is_array() || value.is_object()) {
        return value.is_array() ? "an array" : "an object";
    }
    std::string text   = value.dump_safe();
    size_t      length = 40;
    if (text.size() <= length) {
        return text;
    }
    while ((text[length] & 0xC0) == 0x80) {   // do not split a UTF-8 character
        --length;
    }
    return text.substr(0, length) + "...";
}

std::string written(double number) {
    std::ostringstream out;
    out.precision(10);
    out << number;
    return out.str();
}

[[noreturn]] void refuse(const json & value, const std::string & field, const std::string & wanted) {
    throw field_error(field, "must be ", wanted, ", got ", shown(value));
}

}   // namespace

void check_nesting(const std::string & text, const std::string & field) {
    int32_t depth     = 0;
    bool    in_string = false;
    for (size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (in_string) {
            i += c == '\\';
            in_string = c != '"';
        } else if (c == '"') {
            in_string = true;
        } else if (c == '[' || c == '{') {
            if (++depth > MAX_NESTING) {
                throw field_error(field, "is nested deeper than ", MAX_NESTING, " levels");
            }
        } else if (c == ']' || c == '}') {
            --depth;
        }
    }
}

json parse_json(const std::string & text, const std::string & field) {
    check_nesting(text, field);
    try {
        return json::parse(text);
    } catch (const common_json_error & e) {
        throw field_error(field, "is not valid JSON: ", e.what());
    }
}

bool as_bool(const json & value, const std::string & field) {
    if (!value.is_boolean()) {
        refuse(value, field, "true or false");
    }
    return value.get<bool>();
}

std::string as_string(const json & value, const std::string & field) {
    if (!value.is_string()) {
        refuse(value, field, "a string");
    }
    return value.get<std::string>();
}

double as_number(const json & value, const std::string & field, double min, double max) {
    const double number = value.is_number() ? value.get<double>() : NAN;
    if (!(number >= min && number <= max)) {
        refuse(value, field, "a number from " + written(min) + " to " + written(max));
    }
    return number;
}

int64_t as_integer(const json & value, const std::string & field, int64_t min, int64_t max) {
    // as double: exact for the ranges in use (below 2^53), and accepts 40.0 for 40
    const double number = value.is_number() ? value.get<double>() : NAN;
    if (!(number >= double(min) && number <= double(max)) || number != std::floor(number)) {
        refuse(value, field, "an integer from " + std::to_string(min) + " to " + std::to_string(max));
    }
    return int64_t(number);
}

// NOLINTBEGIN(bugprone-return-const-ref-from-parameter): callers pass parts of a document that they hold
const json & as_array(const json & value, const std::string & field) {
    if (!value.is_array()) {
        refuse(value, field, "an array");
    }
    return value;
}

const json & as_object(const json & value, const std::string & field) {
    if (!value.is_object()) {
        refuse(value, field, "an object");
    }
    return value;
}

// NOLINTEND(bugprone-return-const-ref-from-parameter)

field_reader::field_reader(const json & object, std::string field) :
    object_(as_object(object, field)), field_(std::move(field)) {}

const json * field_reader::take(const std::string & key) {
    taken_.insert(key);
    if (!object_.contains(key) || object_.at(key).is_null()) {
        return nullptr;
    }
    return &object_.at(key);
}

const json & field_reader::need(const std::string & key) {
    const json * value = take(key);
    if (!value) {
        throw field_error(name(key), "is missing");
    }
    return *value;
}

void field_reader::read(const std::string & key, bool & to) {
    if (const json * value = take(key)) {
        to = as_bool(*value, name(key));
    }
}

void field_reader::read(const std::string & key, std::string & to) {
    if (const json * value = take(key)) {
        to = as_string(*value, name(key));
    }
}

void field_reader::read(const std::string & key, float & to, double min, double max) {
    if (const json * value = take(key)) {
        to = float(as_number(*value, name(key), min, max));
    }
}

void field_reader::read(const std::string & key, int32_t & to, int64_t min, int64_t max) {
    if (const json * value = take(key)) {
        to = int32_t(as_integer(*value, name(key), min, max));
    }
}

void field_reader::finish() const {
    for (const auto & entry : object_.items()) {
        if (!taken_.count(entry.key())) {
            throw field_error(name(entry.key()), "is unknown: remove it or correct its spelling");
        }
    }
}

std::vector<std::string> field_reader::untaken() const {
    std::vector<std::string> names;
    for (const auto & entry : object_.items()) {
        if (!taken_.count(entry.key()) && !entry.value().is_null()) {
            names.push_back(name(entry.key()));
        }
    }
    return names;
}

}   // namespace dflash
