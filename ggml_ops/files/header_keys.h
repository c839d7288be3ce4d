// Typed access to the keys of a GGUF's header, and refusals that name the file, the key or tensor, and what is wrong.

#pragma once

#include "base/text.h"
#include "files/gguf_check.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace dflash {

using names = std::initializer_list<const char *>;

inline bool one_of(const std::string & text, names list) {
    return std::find(list.begin(), list.end(), text) != list.end();
}

inline bool starts_with(const std::string & text, const std::string & start) {
    return text.compare(0, start.size(), start) == 0;
}

// A number that may be absent.
struct bound {
    const char * key;
    int64_t      low, high;
};

class header_keys {
  protected:
    const gguf_file & file_;
    const std::string architecture_;   // empty: the header does not say

    explicit header_keys(const gguf_file & file) : file_(file), architecture_(architecture_of(file)) {}

    bool is_drafter() const { return architecture_ == "dflash"; }
    bool is_assistant() const { return architecture_ == ASSISTANT_ARCH; }
    // Models that read a whole text at once and have no memory.
    bool is_encoder() const {
        return is({ "bert", "modern-bert", "nomic-bert", "nomic-bert-moe", "neo-bert", "jina-bert-v2", "jina-bert-v3",
            "eurobert", "gemma-embedding" });
    }

    template <class... Parts> [[noreturn]] void fail_key(const std::string & key, const Parts &... what) const {
        throw gguf_error(concat(file_.path, ": key '", gguf_printable(full(key)), "' ", what...));
    }

    template <class... Parts> [[noreturn]] void fail_tensor(const std::string & name, const Parts &... what) const {
        throw gguf_error(concat(file_.path, ": tensor '", gguf_printable(name), "' ", what...));
    }

    // The same under a condition; the parts are evaluated in any case.
    template <class... Parts> void refuse_key_if(bool wrong, const std::string & key, const Parts &... what) const {
        if (wrong) {
            fail_key(key, what...);
        }
    }

    template <class... Parts> void refuse_tensor_if(bool wrong, const std::string & name, const Parts &... what) const {
        if (wrong) {
            fail_tensor(name, what...);
        }
    }

    bool has(const std::string & name) const { return file_.find_tensor(name) != nullptr; }

    // ".name" is a key of the architecture.
    std::string        full(const std::string & key) const { return key[0] == '.' ? architecture_ + key : key; }
    const gguf_value * find(const std::string & key) const { return file_.find(full(key)); }

    bool is(names list) const { return one_of(architecture_, list); }

    // ---- typed access: a present key of the wrong type is an error, a missing one yields the fallback ----

    const gguf_value * scalar(const std::string & key, gguf_type type, bool required = false) const {
        const gguf_value * value = find(key);
        if (!value) {
            refuse_key_if(required, key, "is missing; convert the model again");
            return nullptr;
        }
        refuse_key_if(value->is_array || value->type != type, key, "must be of type ", gguf_type_name(type), ", found ",
            (value->is_array ? "an array of " : ""), gguf_type_name(value->type));
        return value;
    }

    template <class T> void in_range(const std::string & key, T value, T low, T high) const {
        const bool inside = value >= low && value <= high;   // a NaN is not
        refuse_key_if(!inside, key, "is ", value, "; it must be from ", low, " to ", high);
    }

    int64_t number(const std::string & key, int64_t low, int64_t high) const {
        const int64_t value = scalar(key, gguf_type::u32, true)->integer();
        in_range<int64_t>(key, value, low, high);
        return value;
    }

    void check_real(const std::string & key, double low, double high) const {
        in_range<double>(key, scalar(key, gguf_type::f32, true)->real(), low, high);
    }

    void check_text(const std::string & key, names known) const {
        const gguf_value * value = scalar(key, gguf_type::string);
        if (value && !one_of(value->text, known)) {
            fail_key(key, "is '", gguf_printable(value->text), "'; it must be ", joined(known, ", ", " or "));
        }
    }

    int64_t number(const std::string & key, int64_t low, int64_t high, int64_t fallback) const {
        return find(key) != nullptr ? number(key, low, high) : fallback;
    }

    template <size_t N> void check_bounds(const bound (&bounds)[N]) const {
        for (const bound & b : bounds) {
            number(b.key, b.low, b.high, b.low);
        }
    }

    std::vector<int64_t> integers(const std::string & key, const gguf_value & value) const {
        const bool typed = value.is_array && (value.type == gguf_type::i32 || value.type == gguf_type::u32 ||
                                                 value.type == gguf_type::boolean);
        refuse_key_if(!typed || value.count > gguf_value::max_numbers, key,
            "must be a short array of i32, u32 or bool, found ", (value.is_array ? "an array of " : ""),
            gguf_type_name(value.type));
        std::vector<int64_t> numbers;
        for (uint64_t i = 0; i < value.count; ++i) {
            numbers.push_back(value.integer(i));
        }
        return numbers;
    }

    // A tensor that may be absent.
    void check_f32(const std::string & name) const {
        const gguf_tensor * tensor = file_.find_tensor(name);
        refuse_tensor_if(tensor && std::string(ggml_type_find(tensor->type)->name) != "f32", name, "must be f32");
    }

  private:
    static std::string architecture_of(const gguf_file & file) {
        const gguf_value * value = file.find("general.architecture");
        return value != nullptr ? value->text : "";
    }
};

}   // namespace dflash
