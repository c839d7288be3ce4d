// llama.cpp's interface to JSON schemas (common/json-schema.h, common/json-schema-to-grammar.h), implemented with our
// own reader. llama.cpp's converter confuses names, silently drops limits and keywords, and accepts keys that are not
// valid JSON; every tool call format uses it.

#include "schema/pattern.h"
#include "schema/writer.h"

#include "common/json-schema-to-grammar.h"
#include "common/json-schema.h"

#include "schema/chat_schema.h"

#include <algorithm>
#include <cctype>
#include <regex>

namespace dflash {

namespace {

constexpr size_t MAX_SHOWN = 20000;   // for one function's parameters

using chat_schema     = common_chat_schema;
using chat_schema_ptr = common_chat_schema_ptr;

// The part of a schema that a llama.cpp node represents.
struct held_schema {
    std::shared_ptr<const schema_forms> forms;
    int32_t                             form        = 0;
    const form_alternative *            alternative = nullptr;   // null: all of them
    uint32_t                            types       = ALL_TYPES;

    virtual ~held_schema() = default;
};

template <class Node> struct held_node : Node, held_schema {
    template <class... Args>
    explicit held_node(const held_schema & held, Args &&... args) :
        Node(std::forward<Args>(args)...), held_schema(held) {}
};

// Converts forms into the nodes that llama.cpp's formats inspect: which properties a function has, and whether a value
// may be a string, which some formats write without quotation marks.
class node_maker {
  public:
    explicit node_maker(std::shared_ptr<const schema_forms> forms) : forms_(std::move(forms)) {}

    chat_schema_ptr node_of(int32_t form) {
        if (++n_ > MAX_SHOWN) {   // schemas that refer to each other twice can grow exponentially
            return std::make_unique<held_node<common_chat_schema_any>>(held(form));
        }
        if (open_.count(form)) {
            auto ref = std::make_unique<held_node<common_chat_schema_ref>>(held(form), "#" + std::to_string(form));
            refs_.emplace_back(form, ref.get());
            return ref;
        }
        open_.insert(form);
        const auto &                 all = forms_->at(form).alternatives;
        std::vector<chat_schema_ptr> nodes;
        for (const form_alternative & a : all) {
            if (a.types == ALL_TYPES && !a.values) {
                nodes.clear();
                break;
            }
            add(a, form, nodes);
        }
        chat_schema_ptr node = together(form, std::move(nodes));
        open_.erase(form);
        for (const auto & [target, ref] : refs_) {
            if (target == form) {
                ref->target = node.get();
            }
        }
        refs_.erase(
            std::remove_if(refs_.begin(), refs_.end(), [&](const auto & r) { return r.first == form; }), refs_.end());
        return node;
    }

    // The arguments of a function: one object with the properties of all alternatives.
    chat_schema_ptr arguments() {
        const auto & all = forms_->root().alternatives;
        if (all.size() < 2 ||
            std::any_of(all.begin(), all.end(), [](const auto & a) { return a.types != TYPE_OBJECT || a.values; })) {
            return node_of(0);
        }
        auto                                     node = std::make_unique<held_node<common_chat_schema_object>>(held(0));
        std::map<std::string, std::set<int32_t>> forms;
        std::vector<std::string>                 order;
        for (const form_alternative & a : all) {
            for (const form_object::property & p : a.object.properties) {
                if (forms[p.name].empty()) {
                    order.push_back(p.name);
                }
                forms[p.name].insert(p.value);
            }
        }
        for (const std::string & name : order) {
            const bool required = std::all_of(all.begin(), all.end(), [&](const form_alternative & a) {
                return std::any_of(a.object.properties.begin(), a.object.properties.end(),
                    [&](const auto & p) { return p.name == name && p.required; });
            });
            std::vector<chat_schema_ptr> nodes;
            for (const int32_t form : forms[name]) {
                nodes.push_back(node_of(form));
            }
            node->properties.push_back(
                { name, nodes.size() == 1 ? std::move(nodes[0]) : any_of(-1, std::move(nodes)), required });
        }
        return node;
    }

  private:
    held_schema held(int32_t form, const form_alternative * alternative = nullptr, uint32_t types = ALL_TYPES) const {
        held_schema h;
        h.forms       = forms_;
        h.form        = form;
        h.alternative = alternative;
        h.types       = types;
        return h;
    }

    // form -1: a union of several forms, whose children carry the forms
    chat_schema_ptr any_of(int32_t form, std::vector<chat_schema_ptr> nodes) const {
        auto node      = std::make_unique<held_node<common_chat_schema_any_of>>(held(form));
        node->children = std::move(nodes);
        return node;
    }

    chat_schema_ptr together(int32_t form, std::vector<chat_schema_ptr> nodes) const {
        if (nodes.empty()) {
            return std::make_unique<held_node<common_chat_schema_any>>(held(form));
        }
        return nodes.size() == 1 ? std::move(nodes[0]) : any_of(form, std::move(nodes));
    }

    void add(const form_alternative & a, int32_t form, std::vector<chat_schema_ptr> & nodes) {
        if (a.values) {
            auto node    = std::make_unique<held_node<common_chat_schema_enum>>(held(form, &a, a.types));
            node->values = *a.values;
            nodes.push_back(std::move(node));
            return;
        }
        for (const uint32_t type : { TYPE_OBJECT, TYPE_ARRAY, TYPE_STRING, TYPE_NUMBER, TYPE_BOOLEAN, TYPE_NULL }) {
            if (a.types & type) {
                nodes.push_back(node_of(a, form, a.types & type));
            }
        }
    }

    chat_schema_ptr node_of(const form_alternative & a, int32_t form, uint32_t type) {
        const held_schema h = held(form, &a, type);
        switch (type) {
            case TYPE_OBJECT: {
                auto node = std::make_unique<held_node<common_chat_schema_object>>(h);
                for (const form_object::property & p : a.object.properties) {
                    node->properties.push_back({ p.name, node_of(p.value), p.required });
                }
                if (!a.object.free.empty()) {
                    node->additional_properties = std::make_unique<common_chat_schema_any>();
                }
                return node;
            }
            case TYPE_ARRAY: {
                auto node   = std::make_unique<held_node<common_chat_schema_array>>(h);
                node->items = a.array.rest >= 0 && a.array.prefix.empty() ? node_of(a.array.rest)
                                                                          : std::make_unique<common_chat_schema_any>();
                return node;
            }
            case TYPE_STRING: return std::make_unique<held_node<common_chat_schema_string>>(h);
            case TYPE_INTEGER: return std::make_unique<held_node<common_chat_schema_integer>>(h);
            case TYPE_BOOLEAN: return std::make_unique<held_node<common_chat_schema_boolean>>(h);
            case TYPE_NULL: return std::make_unique<held_node<common_chat_schema_null>>(h);
            default: return std::make_unique<held_node<common_chat_schema_number>>(h);
        }
    }

    std::shared_ptr<const schema_forms>                       forms_;
    size_t                                                    n_ = 0;
    std::set<int32_t>                                         open_;
    std::vector<std::pair<int32_t, common_chat_schema_ref *>> refs_;
};

thread_local schema_witness * witness = nullptr;

// The rules of all schemas of a grammar and llama.cpp's own rules.
class chat_grammar {
  public:
    std::string add_rule(const std::string & name, const std::string & body) {
        static const std::regex not_in_names("[^a-zA-Z0-9-]+");
        const std::string       key = std::regex_replace(name, not_in_names, "-");
        rules_.set(key, body);
        return key;
    }

    std::string add_schema(const common_chat_schema & schema) {
        const auto * held = dynamic_cast<const held_schema *>(&schema);
        if (!held) {
            return rules_.known("schema-value");
        }
        if (held->form < 0) {
            std::string all;
            for (const auto & child : static_cast<const common_chat_schema_any_of &>(schema).children) {
                all += (all.empty() ? "" : " | ") + add_schema(*child);
            }
            return rules_.add(all);
        }
        schema_writer & writer = writers_.try_emplace(held->forms, rules_, *held->forms).first->second;
        if (witness) {
            for (const schema_node * n : held->forms->at(held->form).of) {
                witness->written.insert(n->source->dump());
            }
        }
        return held->alternative ? writer.rule_of(*held->alternative, held->types) : writer.rule_of(held->form);
    }

    std::string text() const { return rules_.text(); }

  private:
    grammar_rules                                                rules_;
    std::map<std::shared_ptr<const schema_forms>, schema_writer> writers_;
};

// Escaped for use in a pattern.
std::string escaped(const std::string & text) {
    std::string out;
    for (const char c : text) {
        out += (std::ispunct((unsigned char) c) ? "\\" : "") + std::string(1, c);
    }
    return out;
}

std::string trimmed(const std::string & text) {
    const size_t begin = text.find_first_not_of(" \t\r\n"), end = text.find_last_not_of(" \t\r\n");
    return begin == std::string::npos ? "" : text.substr(begin, end + 1 - begin);
}

}   // namespace

schema_witness::schema_witness() { witness = this; }

schema_witness::~schema_witness() { witness = nullptr; }

std::vector<std::string> check_schema(const json & schema, const std::string & field) {
    return schema_forms(schema, field).unheld();
}

std::string grammar_of_schema(const json & schema, const std::string & field) {
    const schema_forms forms(schema, field);
    grammar_rules      rules;
    rules.set("root", schema_writer(rules, forms).rule_of(0));
    return rules.text();
}

std::string grammar_of_answer(const json & schema, const std::string & field, const answer_begin & begin) {
    const schema_forms forms(schema, field);
    grammar_rules      rules;
    schema_writer      writer(rules, forms);
    std::string        thoughts;
    const std::string  start = trimmed(begin.thoughts_start), end = trimmed(begin.thoughts_end);
    if (!end.empty()) {
        const automaton   other  = minimal(other_than(matching(escaped(end))));
        const std::string prompt = trimmed(begin.prompt);
        const bool        open   = !start.empty() && prompt.size() >= start.size() &&
                          prompt.compare(prompt.size() - start.size(), start.size(), start) == 0;
        thoughts = writer.rule_of(other) + " " + gbnf_literal(end) + " ";
        thoughts = open ? thoughts : start.empty() ? "" : "(" + gbnf_literal(start) + " " + thoughts + ")? ";
    }
    rules.set("root", gbnf_literal(begin.prompt) + " " + thoughts + "space " + writer.rule_of(0));
    return rules.text();
}

}   // namespace dflash

// ---- llama.cpp's functions ----

std::string json_schema_to_grammar(const common_json & schema, bool /*force_gbnf*/) {
    return dflash::grammar_of_schema(schema, "json_schema");
}

std::string json_schema_to_grammar(const common_chat_schema_document & schema) {
    return build_grammar([&](const common_grammar_builder & builder) {
        builder.add_rule("root", builder.add_schema("root", *schema.root));
    });
}

std::string gbnf_format_literal(const std::string & literal) { return dflash::gbnf_literal(literal); }

std::string build_grammar(
    const std::function<void(const common_grammar_builder &)> & cb, const common_grammar_options & /*options*/) {
    dflash::chat_grammar grammar;
    cb({
        [&](const std::string & name, const std::string & rule) { return grammar.add_rule(name, rule); },
        [&](const std::string & /*name*/, const common_chat_schema & schema) { return grammar.add_schema(schema); },
    });
    return grammar.text();
}

common_chat_schema_document common_chat_schema_from_json(const common_json & schema) {
    dflash::node_maker          maker(std::make_shared<const dflash::schema_forms>(schema, "schema"));
    common_chat_schema_document document;
    document.root = maker.arguments();
    return document;
}

common_chat_schema::type_set common_chat_schema::value_types() const {
    const auto * held = dynamic_cast<const dflash::held_schema *>(this);
    uint32_t     bits = held && held->form >= 0 ? 0 : dflash::ALL_TYPES;
    if (held && held->alternative) {
        bits = held->types;
    } else if (held && held->form >= 0) {
        for (const dflash::form_alternative & a : held->forms->at(held->form).alternatives) {
            bits |= a.types;
        }
    }
    type_set types;
    for (const auto & [bit, type] : std::vector<std::pair<uint32_t, value_type>>{ { dflash::TYPE_NULL, TYPE_NULL },
             { dflash::TYPE_BOOLEAN, TYPE_BOOLEAN }, { dflash::TYPE_INTEGER, TYPE_INTEGER },
             { dflash::TYPE_FRACTION, TYPE_NUMBER }, { dflash::TYPE_STRING, TYPE_STRING },
             { dflash::TYPE_ARRAY, TYPE_ARRAY }, { dflash::TYPE_OBJECT, TYPE_OBJECT } }) {
        if (bits & bit) {
            types.add(type);
        }
    }
    return types;
}

bool common_chat_schema::may_be_string() const {
    // like llama.cpp, write values of any type as JSON
    return kind() != KIND_ANY && value_types().has(TYPE_STRING);
}

const char * common_chat_schema::kind_name(node_kind kind) {
    static const char * const names[] = { "any", "ref", "anyOf", "allOf", "const", "enum", "null", "boolean", "number",
        "integer", "string", "array", "tuple", "object" };
    return size_t(kind) < std::size(names) ? names[kind] : "?";
}

const char * common_chat_schema::type_name(value_type type) {
    static const char * const names[] = { "null", "boolean", "number", "integer", "string", "array", "object" };
    return size_t(type) < std::size(names) ? names[type] : "?";
}
