#include "target/mtp_check.h"

#include "base/text.h"
#include "llama/mtp_layers.h"

#include <algorithm>
#include <initializer_list>

namespace dflash {

namespace {

class mtp_check {
  public:
    explicit mtp_check(const gguf_file & file) :
        file_(file), arch_(file.find("general.architecture")->text), n_mtp_(number(".nextn_predict_layers", 0)),
        first_(number(".block_count", 0) - n_mtp_) {}

    std::string reason() {
        if (n_mtp_ < 1 || !has(first_, "nextn.eh_proj")) {
            return "the file has no MTP layers (nextn tensors)";
        }
        const auto known = std::find_if(
            std::begin(MTP_ARCHS), std::end(MTP_ARCHS), [&](const mtp_arch & a) { return is({ a.name }); });
        if (known == std::end(MTP_ARCHS)) {
            return "llama.cpp does not compute the MTP layers of the architecture " + gguf_printable(arch_);
        }
        if (known->one_head && n_mtp_ > 1) {
            return concat(
                "llama.cpp computes only a single MTP layer of the architecture ", arch_, ", the file has ", n_mtp_);
        }
        const std::string key = unsupported_key();
        if (!key.empty()) {
            return concat("llama.cpp computes no MTP layers of the architecture ", arch_, " with this ", arch_, key);
        }
        for (int64_t i = first_; i < first_ + n_mtp_; ++i) {
            const std::string missing = missing_tensor(i);
            if (!missing.empty()) {
                return concat("the tensor blk.", i, ".", missing, ".weight is missing");
            }
        }
        return "";
    }

  private:
    bool is(std::initializer_list<const char *> names) const {
        return std::any_of(names.begin(), names.end(), [&](const char * name) { return arch_ == name; });
    }

    // i: of an array, which has a value for each layer
    int64_t number(const char * suffix, int64_t otherwise, int64_t i = 0) const {
        const gguf_value * value = file_.find(arch_ + suffix);
        const bool         known = value && value->is_integer() && !value->bytes.empty() && (uint64_t) i < value->count;
        return known ? value->integer(i) : otherwise;
    }

    bool has(int64_t layer, const std::string & part) const {
        return file_.find_tensor("blk." + std::to_string(layer) + "." + part + ".weight") != nullptr;
    }

    // The key whose value the architecture's MTP graph does not support.
    std::string unsupported_key() const {
        if (is({ "deepseek2", "deepseek32", "glm-dsa", "glm4moe" }) &&
            number(".leading_dense_block_count", 0) > first_) {
            return ".leading_dense_block_count";
        }
        if (is({ "deepseek2" })) {
            if (number(".attention.key_length_mla", 0) < 1 || number(".attention.value_length_mla", 0) < 1) {
                return ".attention.key_length_mla";
            }
            // llama.cpp tells models without this rank by their number of layers
            if (number(".attention.q_lora_rank", 0) < 1 || !has(first_, "attn_q_a")) {
                return ".attention.q_lora_rank";
            }
            const gguf_value * scale = file_.find(arch_ + ".attention.temperature_scale");
            return scale && !scale->bytes.empty() && scale->real() != 0.0 ? ".attention.temperature_scale" : "";
        }
        if (is({ "glm4moe" }) && number(".rope.dimension_sections", 0) > 0 &&
            number(".rope.dimension_sections", 0, 1) > 0) {
            return ".rope.dimension_sections";
        }
        if (is({ "deepseek4" })) {
            if (number(".attention.compress_ratios", 0, first_) != 0) {
                return ".attention.compress_ratios";
            }
            return number(".hash_layer_count", 0) > first_ ? ".hash_layer_count" : "";
        }
        return "";
    }

    // A tensor that the MTP graph uses, whether the loader asks for it or not.
    std::string missing_tensor(int64_t layer) const {
        const auto first_of = [&](std::initializer_list<const char *> parts) -> std::string {
            const auto missing =
                std::find_if(parts.begin(), parts.end(), [&](const char * part) { return !has(layer, part); });
            return missing == parts.end() ? "" : *missing;
        };
        std::string missing = first_of({ "nextn.eh_proj", "nextn.enorm", "nextn.hnorm" });
        if (!missing.empty()) {
            return missing;
        }
        if (is({ "mimo2" })) {
            return first_of({ "attn_qkv", "ffn_gate", "ffn_up", "ffn_down" });
        }
        if (is({ "hy_v3", "step35" })) {
            if (!has(layer, "ffn_gate_inp")) {
                return first_of({ "ffn_gate", "ffn_up", "ffn_down" });
            }
            const bool joint = is({ "hy_v3" }) && has(layer, "ffn_gate_up_exps");
            return joint ? first_of({ "ffn_down_exps" })
                         : first_of({ "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps" });
        }
        return "";
    }

    const gguf_file & file_;
    std::string       arch_;
    int64_t           n_mtp_, first_;   // MTP layers are the file's last layers
};

}   // namespace

std::string no_mtp(const gguf_file & file) { return mtp_check(file).reason(); }

}   // namespace dflash
