// check_gguf(): valid files pass, each defect is rejected with a sentence that names the key or tensor, and no bytes
// crash it.
//
// Each case below is, or once was, an abort, a division by zero, a wild read or an endless allocation in llama.cpp.

#include "files/gguf_check.h"
#include "files/projector_check.h"

#include "base/error.h"
#include "files/gguf_file.h"

#include "check.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

using namespace dflash;

namespace {

namespace fs = std::filesystem;

enum : uint32_t { F32 = 0, F16 = 1, Q8_0 = 8, Q8_1 = 9, I8 = 24, I32 = 26, I64 = 27, F64 = 28 };

template <typename T> std::string raw(T value) {
    return std::string(reinterpret_cast<const char *>(&value), sizeof(T));
}

std::string text(const std::string & s) { return raw<uint64_t>(s.size()) + s; }

// One key with its encoded value.
struct pair {
    std::string key;
    uint32_t    type;
    std::string body;
};

struct tensor {
    std::string           name;
    std::vector<uint64_t> dims;
    uint32_t              type = F16;
    std::string           data = "";   // "": zeros of the right size
    uint64_t              skew = 0;    // added to the offset
};

// A GGUF file under construction.
struct image {
    std::vector<pair>   pairs;
    std::vector<tensor> tensors;
    std::string         magic        = "GGUF";
    uint32_t            version      = 3;
    uint64_t            more_keys    = 0;   // claimed in addition to the real ones
    uint64_t            more_tensors = 0;

    void put(const std::string & key, uint32_t type, const std::string & body) {
        drop(key);
        pairs.push_back({ key, type, body });
    }
    void u32(const std::string & key, uint32_t v) { put(key, 4, raw(v)); }
    void f32(const std::string & key, float v) { put(key, 6, raw(v)); }
    void flag(const std::string & key, bool v) { put(key, 7, raw(v)); }
    void str(const std::string & key, const std::string & v) { put(key, 8, text(v)); }
    void i32s(const std::string & key, const std::vector<int32_t> & v) {
        std::string body = raw<uint32_t>(5) + raw<uint64_t>(v.size());
        for (const int32_t x : v) {
            body += raw(x);
        }
        put(key, 9, body);
    }
    void strs(const std::string & key, const std::vector<std::string> & v) {
        std::string body = raw<uint32_t>(8) + raw<uint64_t>(v.size());
        for (const std::string & x : v) {
            body += text(x);
        }
        put(key, 9, body);
    }
    void drop(const std::string & key) {
        for (size_t i = 0; i < pairs.size(); ++i) {
            if (pairs[i].key == key) {
                pairs.erase(pairs.begin() + i--);
            }
        }
    }
    tensor & at(const std::string & name) {
        for (tensor & t : tensors) {
            if (t.name == name) {
                return t;
            }
        }
        throw std::runtime_error("no tensor " + name);
    }

    std::string encode() const {
        std::string out = magic + raw(version) + raw<uint64_t>(tensors.size() + more_tensors) +
                          raw<uint64_t>(pairs.size() + more_keys);
        for (const pair & p : pairs) {
            out += text(p.key) + raw(p.type) + p.body;
        }
        std::string data;
        for (const tensor & t : tensors) {
            out += text(t.name) + raw<uint32_t>(t.dims.size());
            uint64_t n = 1;
            for (const uint64_t d : t.dims) {
                out += raw(d);
                n *= d;
            }
            out += raw(t.type) + raw<uint64_t>(data.size() + t.skew);
            const ggml_type_info * type = ggml_type_find(t.type);
            data += !t.data.empty()
                        ? t.data
                        : std::string(type != nullptr && n < (1 << 20) ? n / type->block * type->bytes : 0, '\0');
            data.resize((data.size() + 31) / 32 * 32);
        }
        out.resize((out.size() + 31) / 32 * 32);
        return out + data;
    }
};

image target() {
    image m;
    m.str("general.architecture", "qwen3");
    m.u32("qwen3.block_count", 1);
    m.u32("qwen3.context_length", 256);
    m.u32("qwen3.embedding_length", 64);
    m.u32("qwen3.feed_forward_length", 64);
    m.u32("qwen3.attention.head_count", 4);
    m.u32("qwen3.attention.head_count_kv", 2);
    m.u32("qwen3.attention.key_length", 16);
    m.u32("qwen3.attention.value_length", 16);
    m.f32("qwen3.attention.layer_norm_rms_epsilon", 1e-6f);
    m.f32("qwen3.rope.freq_base", 1e6f);
    m.str("tokenizer.ggml.model", "gpt2");
    m.strs("tokenizer.ggml.tokens", { "a", "b", "c", "d" });
    m.i32s("tokenizer.ggml.token_type", { 1, 1, 1, 1 });
    m.strs("tokenizer.ggml.merges", { "a b" });
    m.tensors = { { "token_embd.weight", { 64, 4 } }, { "output_norm.weight", { 64 }, F32 },
        { "blk.0.attn_norm.weight", { 64 }, F32 }, { "blk.0.attn_q.weight", { 64, 64 }, Q8_0 } };
    return m;
}

image drafter(bool second) {
    image m = target();
    for (pair & p : m.pairs) {
        if (p.key.rfind("qwen3.", 0) == 0) {
            p.key = "dflash." + p.key.substr(6);
        }
    }
    m.str("general.architecture", "dflash");
    m.u32("tokenizer.ggml.mask_token_id", 3);
    m.u32("dflash.block_size", 8);
    m.i32s("dflash.target_layers", { 0, 1 });
    m.tensors = { { "fc.weight", { 128, 64 } }, { "enc.output_norm.weight", { 64 }, F32 },
        { "blk.0.attn_q.weight", { 64, 64 } } };
    if (second) {
        m.u32("dflash.conv_kernel_size", 2);
        m.u32("dflash.conv_group_size", 16);
        m.u32("dflash.selector_rank", 8);
        m.u32("dflash.selector_top_k", 4);
        m.tensors.push_back({ "selector_hidden.weight", { 64, 8 } });
        m.tensors.push_back({ "blk.0.attn_conv_base", { 64, 2, 2 }, F32 });
    }
    return m;
}

// A DFlare drafter: weights of the taps, and projections of context rows instead of fc.
image dflare() {
    image m             = drafter(false);
    m.tensors[0]        = { "layer_fusion.weight", { 2, 1 }, F32 };
    const uint64_t n_kv = 32;
    for (const char * role : { "attn_v", "attn_k_ctx", "attn_v_ctx" }) {
        m.tensors.push_back({ std::string("blk.0.") + role + ".weight", { 64, n_kv } });
    }
    return m;
}

// A DSpark drafter: tables of rank 8 over the 4 tokens, and a confidence head.
image dspark() {
    image m = drafter(false);
    m.tensors.push_back({ "markov_w1.weight", { 8, 4 } });
    m.tensors.push_back({ "markov_w2.weight", { 8, 4 } });
    m.tensors.push_back({ "conf_proj.weight", { 72, 1 }, F32 });
    m.tensors.push_back({ "conf_proj.bias", { 1 }, F32 });
    return m;
}

// A Domino drafter, whose recurrent cell has 6 values.
image domino() {
    image m = drafter(false);
    m.u32("dflash.domino_prefix_length", 1);
    m.tensors.push_back({ "domino_gru_ih.weight", { 64, 18 } });
    m.tensors.push_back({ "domino_gru_hh.weight", { 6, 18 } });
    m.tensors.push_back({ "domino_hidden.weight", { 64, 8 } });
    m.tensors.push_back({ "domino_state.weight", { 6, 8 } });
    m.tensors.push_back({ "domino_out.weight", { 8, 4 } });
    return m;
}

// A LiliCorr drafter: a correlator of 12 values and 3 heads over 2 candidates of each of the 7 positions, which
// compares vectors of 6.
image lilicorr() {
    image m = drafter(false);
    m.u32("dflash.lilicorr_top_k", 2);
    m.u32("dflash.lilicorr_block_count", 1);
    m.u32("dflash.lilicorr_head_count", 3);
    m.f32("dflash.lilicorr_logit_scale", 8.0f);
    m.f32("dflash.lilicorr_vector_epsilon", 1e-4f);
    const auto floats = [&](const std::string & name, const std::vector<uint64_t> & dims) {
        m.tensors.push_back({ "lilicorr_" + name, dims, F32 });
    };
    const auto affine = [&](const std::string & name, uint64_t n_in, uint64_t n_out) {
        m.tensors.push_back({ "lilicorr_" + name + ".weight", { n_in, n_out } });
        floats(name + ".bias", { n_out });
    };
    for (const char * name : { "token", "hidden", "context" }) {
        affine(name, 64, 12);
    }
    floats("feature_norm.weight", { 5 });
    floats("feature_norm.bias", { 5 });
    affine("feature_up", 5, 12);
    floats("position_embd", { 12, 7 });
    floats("rank_embd", { 12, 2 });
    floats("distance_bias", { 15, 3 });
    floats("same_bias", { 3 });
    for (const char * name : { "output_norm", "context_norm", "blk.0.attn_norm", "blk.0.ffn_norm" }) {
        floats(std::string(name) + ".weight", { 12 });
    }
    affine("blk.0.attn_qkv", 12, 36);
    affine("blk.0.ffn_up", 12, 24);
    affine("blk.0.ffn_down", 24, 12);
    for (const char * name : { "feature_down", "blk.0.attn_output", "factor" }) {
        affine(name, 12, 12);
    }
    for (const char * name : { "factor_context", "factor_product" }) {
        m.tensors.push_back({ std::string("lilicorr_") + name + ".weight", { 12, 12 } });
    }
    for (const char * name : { "out", "in", "start" }) {
        affine(name, 12, 6);
    }
    return m;
}

// The same with DFlash 2's convolutions.
image convolved() {
    image m = lilicorr();
    m.u32("dflash.conv_kernel_size", 2);
    m.u32("dflash.conv_group_size", 16);
    for (const char * name : { "blk.0.attn_conv", "blk.0.ffn_conv" }) {
        m.tensors.push_back({ std::string(name) + "_base", { 64, 2, 2 }, F32 });
        m.tensors.push_back({ std::string(name) + "_proj.weight", { 64, 16 } });
    }
    return m;
}

// BERT with a head for scores.
image encoder() {
    image m;
    m.str("general.architecture", "bert");
    m.u32("bert.block_count", 1);
    m.u32("bert.context_length", 64);
    m.u32("bert.embedding_length", 64);
    m.u32("bert.feed_forward_length", 64);
    m.u32("bert.attention.head_count", 4);
    m.f32("bert.attention.layer_norm_epsilon", 1e-12f);
    m.flag("bert.attention.causal", false);
    m.u32("bert.pooling_type", 2);
    m.str("tokenizer.ggml.model", "bert");
    m.strs("tokenizer.ggml.tokens", { "[PAD]", "[CLS]", "[SEP]", "a" });
    m.u32("tokenizer.ggml.bos_token_id", 1);
    m.u32("tokenizer.ggml.seperator_token_id", 2);
    m.tensors = { { "token_embd.weight", { 64, 4 } }, { "token_types.weight", { 64, 2 }, F32 },
        { "blk.0.attn_q.weight", { 64, 64 } }, { "cls.weight", { 64, 64 } }, { "cls.bias", { 64 }, F32 },
        { "cls.output.weight", { 64, 2 }, F32 } };
    m.strs("bert.classifier.output_labels", { "yes", "no" });
    return m;
}

// A projector of one encoder: its keys, and the tensors that a graph needs of all types.
image projector(const std::string & kind, bool hears = false) {
    const std::string part = hears ? "clip.audio." : "clip.vision.";
    image             m;
    m.str("general.architecture", "clip");
    m.str("clip.projector_type", kind);
    m.flag(hears ? "clip.has_audio_encoder" : "clip.has_vision_encoder", true);
    m.u32(part + "embedding_length", 64);
    m.u32(part + "block_count", 2);
    m.u32(part + "attention.head_count", 4);
    m.u32(part + "feed_forward_length", 64);
    m.u32(part + "projection_dim", 64);
    m.f32(part + "attention.layer_norm_epsilon", 1e-6f);
    if (hears) {
        m.u32("clip.audio.num_mel_bins", 80);
        m.tensors = { { "a.position_embd.weight", { 64, 16 }, F32 } };
        return m;
    }
    m.u32("clip.vision.image_size", 56);
    m.u32("clip.vision.patch_size", 14);
    for (const char * key : { "clip.vision.image_mean", "clip.vision.image_std" }) {
        m.put(key, 9, raw<uint32_t>(6) + raw<uint64_t>(3) + raw(0.5f) + raw(0.5f) + raw(0.5f));
    }
    m.tensors = { { "v.patch_embd.weight", { 14, 14, 3, 64 } }, { "v.patch_embd.weight.1", { 14, 14, 3, 64 } },
        { "v.position_embd.weight", { 64, 16 }, F32 }, { "v.class_embd", { 64 }, F32 }, { "mm.2.weight", { 64, 64 } },
        { "v.patch_embd.bias", { 64 }, F32 }, { "v.conv_stem.conv.weight", { 3, 3, 3, 64 } } };
    return m;
}

// Keys of granite4_vision: one former, which takes every second patch.
void sample(image & m, uint32_t window, uint32_t query) {
    m.u32("clip.vision.projector.window_side", window);
    m.u32("clip.vision.projector.query_side", query);
    m.i32s("clip.vision.feature_layer", { 1 });
    m.i32s("clip.vision.projector.spatial_offsets", { 0 });
}

// The same for another architecture, whose layers may have sliding windows.
image windowed(const std::string & architecture) {
    image m = encoder();
    for (pair & p : m.pairs) {
        if (p.key.rfind("bert.", 0) == 0) {
            p.key = architecture + p.key.substr(4);
        }
    }
    m.str("general.architecture", architecture);
    m.u32(architecture + ".block_count", 2);
    m.u32(architecture + ".attention.head_count_kv", 4);
    m.u32(architecture + ".attention.sliding_window", 8);
    m.u32(architecture + ".attention.sliding_window_pattern", 2);
    return m;
}

// A charsmap whose root leads to the node of 'a', a leaf with the text at `text`.
std::string charsmap(uint32_t text, bool ended = true) {
    std::vector<uint32_t> nodes(512);
    nodes[0]             = 256u << 10;                     // the root's base
    nodes[256 ^ 'a']     = (1u << 10) | (1u << 8) | 'a';   // a child with a leaf, whose base is 1
    nodes[256 ^ 'a' ^ 1] = text;
    std::string body     = raw<uint32_t>(nodes.size() * 4);
    for (const uint32_t node : nodes) {
        body += raw(node);
    }
    return body + "bc" + std::string(ended ? 1 : 0, '\0');
}

image unigrams(const std::string & table) {
    image m = encoder();
    m.str("tokenizer.ggml.model", "t5");
    m.put("tokenizer.ggml.precompiled_charsmap", 9, raw<uint32_t>(0) + raw<uint64_t>(table.size()) + table);
    return m;
}

// The folder of this run's files.
struct scratch {
    fs::path dir = fs::temp_directory_path() / ("dflash-gguf-check-" + std::to_string(std::random_device()()));
    scratch() { fs::create_directories(dir); }
    ~scratch() { fs::remove_all(dir); }

    std::string write(const std::string & bytes, const std::string & name = "model.gguf") const {
        std::ofstream(dir / name, std::ios::binary) << bytes;
        return (dir / name).u8string();
    }
};

// Whether a file passes, and its error.
bool passes(const std::string & path, std::string & error, gguf_use use = gguf_use::generate) {
    error.clear();
    try {
        check_gguf(path.c_str(), use);
    } catch (const status_error & e) {
        error = e.what();
    }
    return error.empty();
}

// The error of a file with these bytes, empty if it passes.
std::string check(const scratch & files, const std::string & bytes, gguf_use use = gguf_use::generate) {
    std::string error;
    passes(files.write(bytes), error, use);
    return error;
}

struct bad_case {
    const char *                 name;
    const char *                 base;   // of an image: see base()
    std::function<void(image &)> edit;
    const char *                 field;   // the key or tensor that the error must name; "": none; "*": any
};

image base(const std::string & name) {
    return name == "target"      ? target()
           : name == "dflare"    ? dflare()
           : name == "dspark"    ? dspark()
           : name == "domino"    ? domino()
           : name == "lilicorr"  ? lilicorr()
           : name == "convolved" ? convolved()
                                 : drafter(name == "dflash2");
}

const float nan_value = std::numeric_limits<float>::quiet_NaN();

// clang-format off
const std::vector<bad_case> bad_cases = {
    // ---- the header
    { "magic",                 "target", [](image & m) { m.magic = "GGML"; }, "" },
    { "version 1",             "target", [](image & m) { m.version = 1; }, "" },
    { "big endian",            "target", [](image & m) { m.version = 0x03000000; }, "" },
    { "more keys than bytes",  "target", [](image & m) { m.more_keys = 1ull << 60; }, "" },
    { "more tensors than bytes", "target", [](image & m) { m.more_tensors = 1ull << 60; }, "" },
    { "one key too many",      "target", [](image & m) { m.more_keys = 1; }, "*" },
    { "key twice",             "target", [](image & m) { m.pairs.push_back(m.pairs[1]); }, "qwen3.block_count" },
    { "empty key",             "target", [](image & m) { m.u32("", 1); }, "" },
    { "zero byte in a key",    "target", [](image & m) { m.u32(std::string("a\0b", 3), 1); }, "*" },
    { "unknown type",          "target", [](image & m) { m.put("x", 13, ""); }, "x" },
    { "array of arrays",       "target", [](image & m) { m.put("x", 9, raw<uint32_t>(9) + raw<uint64_t>(1)); }, "x" },
    { "string beyond the file", "target", [](image & m) { m.put("x", 8, raw<uint64_t>(1 << 27)); }, "" },
    { "string of 2^63 bytes",  "target", [](image & m) { m.put("x", 8, raw<uint64_t>(1ull << 63)); }, "" },
    { "array of 2^61 u64",     "target", [](image & m) { m.put("x", 9, raw<uint32_t>(10) + raw<uint64_t>(1ull << 61)); }, "" },
    { "array of 2^40 strings", "target", [](image & m) { m.put("x", 9, raw<uint32_t>(8) + raw<uint64_t>(1ull << 40)); }, "" },
    { "alignment 16",          "target", [](image & m) { m.u32("general.alignment", 16); }, "general.alignment" },
    { "alignment 48",          "target", [](image & m) { m.u32("general.alignment", 48); }, "general.alignment" },
    { "alignment as text",     "target", [](image & m) { m.str("general.alignment", "32"); }, "general.alignment" },
    { "split model under a wrong name", "target", [](image & m) { m.put("split.count", 2, raw<uint16_t>(3)); m.put("split.no", 2, raw<uint16_t>(0)); }, "split.count" },
    // ---- the tensor table
    { "tensor twice",          "target", [](image & m) { m.tensors.push_back(m.tensors[1]); }, "output_norm.weight" },
    { "long tensor name",      "target", [](image & m) { m.tensors[0].name = std::string(64, 'x'); }, "" },
    { "zero byte in a name",   "target", [](image & m) { m.tensors[0].name = std::string("a\0b", 3); }, "*" },
    { "zero dimension",        "target", [](image & m) { m.tensors[0].dims[1] = 0; }, "token_embd.weight" },
    { "negative dimension",    "target", [](image & m) { m.tensors[0].dims[1] = ~0ull; }, "token_embd.weight" },
    { "product overflows",     "target", [](image & m) { m.tensors[0].dims = { 1ull << 32, 1ull << 32 }; }, "token_embd.weight" },
    { "five dimensions",       "target", [](image & m) { m.tensors[0].dims = { 1, 1, 1, 1, 1 }; }, "token_embd.weight" },
    { "removed tensor type",   "target", [](image & m) { m.tensors[0].type = 31; }, "token_embd.weight" },
    { "unknown tensor type",   "target", [](image & m) { m.tensors[0].type = 43; }, "token_embd.weight" },
    { "row of half a block",   "target", [](image & m) { m.at("blk.0.attn_q.weight").dims = { 48, 64 }; }, "blk.0.attn_q.weight" },
    { "gap between tensors",   "target", [](image & m) { m.tensors[2].skew = 32; }, "blk.0.attn_norm.weight" },
    { "offset 2^64 - 32",      "target", [](image & m) { m.tensors[0].skew = ~0ull - 31; }, "token_embd.weight" },
    { "data cut off",          "target", [](image & m) { m.tensors.back().dims = { 64, 1 << 14 }; }, "blk.0.attn_q.weight" },
    // ---- types on which ggml's kernels abort or call a null pointer
    { "f64 norm",              "target", [](image & m) { m.at("output_norm.weight").type = F64; }, "output_norm.weight" },
    { "f16 norm",              "target", [](image & m) { m.at("blk.0.attn_norm.weight").type = F16; }, "blk.0.attn_norm.weight" },
    { "i8 matrix",             "target", [](image & m) { m.at("blk.0.attn_q.weight").type = I8; }, "blk.0.attn_q.weight" },
    { "q8_1 matrix",           "target", [](image & m) { m.at("blk.0.attn_q.weight").type = Q8_1; }, "blk.0.attn_q.weight" },
    { "f16 convolution base",  "dflash2", [](image & m) { m.at("blk.0.attn_conv_base").type = F16; }, "blk.0.attn_conv_base" },
    // ---- numbers that are asserted, divided by or multiplied
    { "no architecture",       "target", [](image & m) { m.drop("general.architecture"); }, "general.architecture" },
    { "another dialect",       "dflash", [](image & m) { m.str("general.architecture", "dflash-draft"); },
     "general.architecture" },
    { "encoder",               "target", [](image & m) { m.str("general.architecture", "bert"); }, "general.architecture" },
    { "no layers",             "target", [](image & m) { m.u32("qwen3.block_count", 0); }, "qwen3.block_count" },
    { "513 layers",            "target", [](image & m) { m.u32("qwen3.block_count", 513); }, "qwen3.block_count" },
    { "layers as text",        "target", [](image & m) { m.str("qwen3.block_count", "1"); }, "qwen3.block_count" },
    { "only nextn layers",     "target", [](image & m) { m.u32("qwen3.nextn_predict_layers", 1); }, "qwen3.nextn_predict_layers" },
    { "wider output",          "dflash", [](image & m) { m.u32("dflash.embedding_length_out", 128); }, "dflash.embedding_length_out" },
    { "endless context",       "target", [](image & m) { m.u32("qwen3.context_length", 1u << 31); }, "qwen3.context_length" },
    { "not causal",            "target", [](image & m) { m.flag("qwen3.attention.causal", false); }, "qwen3.attention.causal" },
    { "pooling type 9",        "target", [](image & m) { m.u32("qwen3.pooling_type", 9); }, "qwen3.pooling_type" },
    { "no heads",              "target", [](image & m) { m.u32("qwen3.attention.head_count", 0); }, "qwen3.attention.head_count" },
    { "no K/V heads",          "target", [](image & m) { m.u32("qwen3.attention.head_count_kv", 0); }, "qwen3.attention.head_count_kv" },
    { "3 K/V heads for 4",     "target", [](image & m) { m.u32("qwen3.attention.head_count_kv", 3); }, "qwen3.attention.head_count_kv" },
    { "heads of two layers",   "target", [](image & m) { m.i32s("qwen3.attention.head_count", { 4, 4 }); }, "qwen3.attention.head_count" },
    { "negative heads",        "target", [](image & m) { m.i32s("qwen3.attention.head_count", { -1 }); }, "qwen3.attention.head_count" },
    { "more heads than width", "target", [](image & m) { m.u32("qwen3.attention.head_count", 128); m.drop("qwen3.attention.key_length"); m.drop("qwen3.attention.value_length"); }, "qwen3.attention.head_count" },
    { "K and V sizes differ",  "target", [](image & m) { m.u32("qwen3.attention.value_length", 32); }, "qwen3.attention.value_length" },
    { "head size that wraps",  "target", [](image & m) { m.u32("qwen3.attention.key_length", (1u << 31) + 16); }, "qwen3.attention.key_length" },
    { "negative epsilon",      "target", [](image & m) { m.f32("qwen3.attention.layer_norm_rms_epsilon", -1e-6f); }, "qwen3.attention.layer_norm_rms_epsilon" },
    { "epsilon not a number",  "target", [](image & m) { m.f32("qwen3.attention.layer_norm_rms_epsilon", nan_value); }, "qwen3.attention.layer_norm_rms_epsilon" },
    { "infinite scale",        "target", [](image & m) { m.f32("qwen3.attention.scale", INFINITY); }, "qwen3.attention.scale" },
    { "rope base 0",           "target", [](image & m) { m.f32("qwen3.rope.freq_base", 0.0f); }, "qwen3.rope.freq_base" },
    { "rope scaling unknown",  "target", [](image & m) { m.str("qwen3.rope.scaling.type", "magic"); }, "qwen3.rope.scaling.type" },
    { "rope over nothing",     "dflash", [](image & m) { m.u32("dflash.rope.dimension_count", 0); }, "dflash.rope.dimension_count" },
    { "odd head",              "dflash", [](image & m) { m.u32("dflash.attention.key_length", 15); m.u32("dflash.attention.value_length", 15); }, "dflash.rope.dimension_count" },
    { "odd rope",              "target", [](image & m) { m.u32("qwen3.rope.dimension_count", 15); }, "qwen3.rope.dimension_count" },
    { "rope beyond the head",  "target", [](image & m) { m.u32("qwen3.rope.dimension_count", 18); }, "qwen3.rope.dimension_count" },
    { "rope below the head",   "target", [](image & m) { m.u32("qwen3.rope.dimension_count", 8); }, "qwen3.rope.dimension_count" },
    { "rope beyond the window's head", "target", [](image & m) { m.u32("qwen3.attention.key_length_swa", 8); }, "qwen3.rope.dimension_count_swa" },
    { "sections sum to 0",     "target", [](image & m) { m.i32s("qwen3.rope.dimension_sections", { 0, 0, 0, 0 }); }, "qwen3.rope.dimension_sections" },
    { "sections cancel out",   "dflash", [](image & m) { m.i32s("dflash.rope.dimension_sections", { 1, -1, 0, 0 }); }, "dflash.rope.dimension_sections" },
    { "only the last section", "dflash", [](image & m) { m.i32s("dflash.rope.dimension_sections", { 0, 0, 0, 4 }); }, "dflash.rope.dimension_sections" },
    { "three sections",        "target", [](image & m) { m.i32s("qwen3.rope.dimension_sections", { 4, 2, 2 }); }, "qwen3.rope.dimension_sections" },
    { "more experts used than there are", "target", [](image & m) { m.u32("qwen3.expert_count", 4); m.u32("qwen3.expert_used_count", 5); }, "qwen3.expert_used_count" },
    { "experts, none used",    "target", [](image & m) { m.u32("qwen3.expert_count", 4); }, "qwen3.expert_used_count" },
    { "experts' architecture without experts", "target", [](image & m) {
        for (pair & p : m.pairs) { if (p.key.rfind("qwen3.", 0) == 0) { p.key = "qwen35moe." + p.key.substr(6); } }
        m.str("general.architecture", "qwen35moe"); }, "qwen35moe.expert_used_count" },
    { "1025 experts",          "target", [](image & m) { m.u32("qwen3.expert_count", 1025); }, "qwen3.expert_count" },
    { "groups that do not divide", "target", [](image & m) { m.u32("qwen3.expert_count", 4); m.u32("qwen3.expert_used_count", 2); m.u32("qwen3.expert_group_count", 3); m.u32("qwen3.expert_group_used_count", 1); }, "qwen3.expert_group_count" },
    { "gating function 9",     "target", [](image & m) { m.u32("qwen3.expert_gating_func", 9); }, "qwen3.expert_gating_func" },
    { "attention interval 0",  "target", [](image & m) { m.u32("qwen3.full_attention_interval", 0); }, "qwen3.full_attention_interval" },
    { "step rank 0",           "target", [](image & m) { m.u32("qwen3.ssm.time_step_rank", 0); }, "qwen3.ssm.time_step_rank" },
    { "window of 2^31",        "target", [](image & m) { m.u32("qwen3.attention.sliding_window", 1u << 31); }, "qwen3.attention.sliding_window" },
    // ---- the tokenizer
    { "no tokenizer",          "target", [](image & m) { m.str("tokenizer.ggml.model", "none"); }, "tokenizer.ggml.model" },
    { "no tokens",             "target", [](image & m) { m.strs("tokenizer.ggml.tokens", {}); }, "tokenizer.ggml.tokens" },
    { "tokens as numbers",     "target", [](image & m) { m.i32s("tokenizer.ggml.tokens", { 1, 2, 3, 4 }); }, "tokenizer.ggml.tokens" },
    { "token twice",           "target", [](image & m) { m.strs("tokenizer.ggml.tokens", { "a", "b", "a", "d" }); }, "tokenizer.ggml.tokens" },
    { "tokens that differ behind a zero byte", "target", [](image & m) { m.strs("tokenizer.ggml.tokens", { std::string("a\0b", 3), "b", std::string("a\0c", 3), "d" }); }, "tokenizer.ggml.tokens" },
    { "the name of an empty token taken", "target", [](image & m) { m.strs("tokenizer.ggml.tokens", { "", "b", "[EMPTY_0]", "d" }); }, "tokenizer.ggml.tokens" },
    { "too few token types",   "target", [](image & m) { m.i32s("tokenizer.ggml.token_type", { 1 }); }, "tokenizer.ggml.token_type" },
    { "scores as text",        "target", [](image & m) { m.strs("tokenizer.ggml.scores", { "a", "b", "c", "d" }); }, "tokenizer.ggml.scores" },
    { "merges as numbers",     "target", [](image & m) { m.i32s("tokenizer.ggml.merges", { 1 }); }, "tokenizer.ggml.merges" },
    // ---- drafters
    { "no taps",               "dflash", [](image & m) { m.drop("dflash.target_layers"); }, "dflash.target_layers" },
    { "empty taps",            "dflash", [](image & m) { m.i32s("dflash.target_layers", {}); }, "dflash.target_layers" },
    { "negative tap",          "dflash", [](image & m) { m.i32s("dflash.target_layers", { 0, -1 }); }, "dflash.target_layers" },
    { "taps as text",          "dflash", [](image & m) { m.strs("dflash.target_layers", { "0" }); }, "dflash.target_layers" },
    { "block of 1",            "dflash", [](image & m) { m.u32("dflash.block_size", 1); }, "dflash.block_size" },
    { "block of 65",           "dflash", [](image & m) { m.u32("dflash.block_size", 65); }, "dflash.block_size" },
    { "no mask token",         "dflash", [](image & m) { m.drop("tokenizer.ggml.mask_token_id"); }, "tokenizer.ggml.mask_token_id" },
    { "mask token outside",    "dflash", [](image & m) { m.u32("tokenizer.ggml.mask_token_id", 4); }, "tokenizer.ggml.mask_token_id" },
    { "layers of other heads", "dflash", [](image & m) { m.u32("dflash.block_count", 2); m.i32s("dflash.attention.head_count", { 4, 2 }); }, "dflash.attention.head_count" },
    { "layers of other K/V heads", "dflash", [](image & m) { m.u32("dflash.block_count", 2); m.i32s("dflash.attention.head_count_kv", { 2, 1 }); }, "dflash.attention.head_count_kv" },
    { "wider values than keys", "dflash", [](image & m) { m.u32("dflash.attention.value_length", 32); }, "dflash.attention.value_length" },
    { "activation unknown",    "dflash", [](image & m) { m.str("dflash.hidden_activation", "relu"); }, "dflash.hidden_activation" },
    { "window without pattern", "dflash", [](image & m) { m.u32("dflash.attention.sliding_window", 64); }, "dflash.attention.sliding_window_pattern" },
    { "pattern without a window layer", "dflash", [](image & m) { m.u32("dflash.attention.sliding_window", 64); m.i32s("dflash.attention.sliding_window_pattern", { 0 }); }, "dflash.attention.sliding_window_pattern" },
    { "selector keys without tensors", "dflash", [](image & m) { m.u32("dflash.selector_top_k", 4); }, "dflash.selector_top_k" },
    { "selector tensors without keys", "dflash2", [](image & m) { m.drop("dflash.selector_rank"); }, "dflash.selector_rank" },
    { "DFlash 2 without block size", "dflash2", [](image & m) { m.drop("dflash.block_size"); }, "dflash.block_size" },
    { "group of 0",            "dflash2", [](image & m) { m.u32("dflash.conv_group_size", 0); }, "dflash.conv_group_size" },
    { "group does not divide", "dflash2", [](image & m) { m.u32("dflash.conv_group_size", 17); }, "dflash.conv_group_size" },
    { "lattice wider than a row", "dflash2", [](image & m) { m.u32("dflash.embedding_length", 16); }, "dflash.selector_top_k" },
    { "more candidates than tokens", "dflash2", [](image & m) { m.u32("dflash.selector_top_k", 5); }, "dflash.selector_top_k" },
    { "more candidates than part of the tokens", "dflash2", [](image & m) { m.u32("dflash.selector_vocab_size", 3); }, "dflash.selector_top_k" },
    { "candidates beyond the tokens", "dflash", [](image & m) { m.u32("dflash.selector_vocab_size", 5); }, "dflash.selector_vocab_size" },
    { "no candidates",         "dflash", [](image & m) { m.u32("dflash.selector_vocab_size", 0); }, "dflash.selector_vocab_size" },
    { "no base of injected keys", "dflash", [](image & m) { m.f32("dflash.backbone_rotary_base", 0.0f); }, "dflash.backbone_rotary_base" },
    { "base of injected keys as a number", "dflash", [](image & m) { m.u32("dflash.backbone_rotary_base", 10000); }, "dflash.backbone_rotary_base" },
    { "bias of f16",           "dflash", [](image & m) { m.tensors.push_back({ "blk.0.attn_q.bias", { 64 }, F16 }); }, "blk.0.attn_q.bias" },
    { "mask embedding of f16", "dflash", [](image & m) { m.tensors.push_back({ "mask_embd.weight", { 64 }, F16 }); }, "mask_embd.weight" },
    { "no fusion of taps",     "dflash", [](image & m) { m.at("fc.weight").name = "other.weight"; }, "fc.weight" },
    { "two fusions of taps",   "dflare", [](image & m) { m.tensors.push_back({ "fc.weight", { 128, 64 } }); }, "fc.weight" },
    { "shares of other taps",  "dflare", [](image & m) { m.i32s("dflash.target_layers", { 0 }); }, "layer_fusion.weight" },
    { "f16 shares",            "dflare", [](image & m) { m.i32s("dflash.target_layers", { 0, 1 }); m.at("layer_fusion.weight").type = F16; }, "layer_fusion.weight" },
    { "no context keys",       "dflare", [](image & m) { m.at("blk.0.attn_k_ctx.weight").name = "blk.0.other.weight"; }, "blk.0.attn_k_ctx.weight" },
    { "narrow context values", "dflare", [](image & m) { m.at("blk.0.attn_v_ctx.weight").dims = { 64, 16 }; }, "blk.0.attn_v_ctx.weight" },
    { "shared K and V beside context values", "dflare", [](image & m) { m.at("blk.0.attn_v.weight").name = "blk.0.other.weight"; }, "blk.0.attn_v.weight" },
    { "context keys with fc",  "dflash", [](image & m) { m.tensors.push_back({ "blk.0.attn_k_ctx.weight", { 64, 32 } }); }, "blk.0.attn_k_ctx.weight" },
    { "DeepSeek-V4's layers",  "dflash", [](image & m) { m.u32("dflash.hyper_connection.count", 4); }, "dflash.hyper_connection.count" },
    { "anchor as a number",    "dflash", [](image & m) { m.u32("dflash.sample_from_anchor", 1); }, "dflash.sample_from_anchor" },
    { "one Markov table",      "dflash", [](image & m) { m.tensors.push_back({ "markov_w1.weight", { 8, 4 } }); }, "markov_w1.weight" },
    { "the other Markov table", "dflash", [](image & m) { m.tensors.push_back({ "markov_w2.weight", { 8, 4 } }); }, "markov_w2.weight" },
    { "Markov tables beside a selector", "dflash2", [](image & m) { m.tensors.push_back({ "markov_w1.weight", { 8, 4 } }); m.tensors.push_back({ "markov_w2.weight", { 8, 4 } }); }, "markov_w1.weight" },
    { "Markov table of other tokens", "dspark", [](image & m) { m.at("markov_w1.weight").dims = { 8, 3 }; }, "markov_w1.weight" },
    { "Markov tables of two ranks", "dspark", [](image & m) { m.at("markov_w2.weight").dims = { 4, 4 }; }, "markov_w2.weight" },
    { "quantized Markov scale", "dspark", [](image & m) { m.tensors.push_back({ "markov_w2.scale", { 1 }, F32 }); }, "markov_w2.scale" },
    { "narrow confidence head", "dspark", [](image & m) { m.at("conf_proj.weight").dims = { 64, 1 }; }, "conf_proj.weight" },
    { "quantized confidence head", "dspark", [](image & m) { m.at("conf_proj.weight").dims = { 96, 1 }; m.at("conf_proj.weight").type = Q8_0; }, "conf_proj.weight" },
    { "two confidence biases", "dspark", [](image & m) { m.at("conf_proj.bias").dims = { 2 }; }, "conf_proj.bias" },
    { "bias without confidence", "dspark", [](image & m) { m.at("conf_proj.weight").name = "blk.0.other.weight"; }, "conf_proj.bias" },
    { "DSpark without block size", "dspark", [](image & m) { m.drop("dflash.block_size"); }, "dflash.block_size" },
    { "Domino without a prefix", "domino", [](image & m) { m.drop("dflash.domino_prefix_length"); }, "dflash.domino_prefix_length" },
    { "Domino's prefix alone", "dflash", [](image & m) { m.u32("dflash.domino_prefix_length", 1); }, "dflash.domino_prefix_length" },
    { "Domino without a cell", "domino", [](image & m) { m.at("domino_gru_ih.weight").name = "other.weight"; }, "dflash.domino_prefix_length" },
    { "prefix beyond a block", "domino", [](image & m) { m.u32("dflash.domino_prefix_length", 65); }, "dflash.domino_prefix_length" },
    { "two gates",             "domino", [](image & m) { m.at("domino_gru_ih.weight").dims = { 64, 17 }; }, "domino_gru_ih.weight" },
    { "other states",          "domino", [](image & m) { m.at("domino_gru_hh.weight").dims = { 5, 18 }; }, "domino_gru_hh.weight" },
    { "no states",             "domino", [](image & m) { m.at("domino_state.weight").name = "other.weight"; }, "domino_state.weight" },
    { "corrections of fewer tokens", "domino", [](image & m) { m.at("domino_out.weight").dims = { 8, 3 }; }, "domino_out.weight" },
    { "no corrections",        "domino", [](image & m) { m.at("domino_out.weight").name = "other.weight"; }, "domino_out.weight" },
    { "wide corrections",      "domino", [](image & m) { m.at("domino_hidden.weight").dims = { 64, 9 }; }, "domino_hidden.weight" },
    { "LiliCorr without candidates", "lilicorr", [](image & m) { m.drop("dflash.lilicorr_top_k"); }, "dflash.lilicorr_top_k" },
    { "LiliCorr's candidates alone", "dflash", [](image & m) { m.u32("dflash.lilicorr_top_k", 2); }, "dflash.lilicorr_top_k" },
    { "no candidate",          "lilicorr", [](image & m) { m.u32("dflash.lilicorr_top_k", 0); }, "dflash.lilicorr_top_k" },
    { "more of LiliCorr's candidates than tokens", "lilicorr", [](image & m) { m.u32("dflash.lilicorr_top_k", 5); }, "dflash.lilicorr_top_k" },
    { "candidates as a float", "lilicorr", [](image & m) { m.f32("dflash.lilicorr_top_k", 2.0f); }, "dflash.lilicorr_top_k" },
    { "LiliCorr without a block size", "lilicorr", [](image & m) { m.drop("dflash.block_size"); m.at("lilicorr_position_embd").dims = { 12 }; m.at("lilicorr_distance_bias").dims = { 3, 3 }; }, "dflash.block_size" },
    { "LiliCorr of another block size", "lilicorr", [](image & m) { m.u32("dflash.block_size", 9); }, "lilicorr_position_embd" },
    { "LiliCorr that begins at the anchor", "lilicorr", [](image & m) { m.flag("dflash.sample_from_anchor", true); }, "dflash.sample_from_anchor" },
    { "LiliCorr without heads", "lilicorr", [](image & m) { m.drop("dflash.lilicorr_head_count"); }, "dflash.lilicorr_head_count" },
    { "heads of LiliCorr that do not divide", "lilicorr", [](image & m) { m.u32("dflash.lilicorr_head_count", 5); }, "dflash.lilicorr_head_count" },
    { "layers of LiliCorr",    "lilicorr", [](image & m) { m.u32("dflash.lilicorr_block_count", 17); }, "dflash.lilicorr_block_count" },
    { "a layer of LiliCorr's too few", "lilicorr", [](image & m) { m.u32("dflash.lilicorr_block_count", 2); }, "lilicorr_blk.1.attn_norm.weight" },
    { "no scale",              "lilicorr", [](image & m) { m.drop("dflash.lilicorr_logit_scale"); }, "dflash.lilicorr_logit_scale" },
    { "a negative scale",      "lilicorr", [](image & m) { m.f32("dflash.lilicorr_logit_scale", -8.0f); }, "dflash.lilicorr_logit_scale" },
    { "vectors without an epsilon", "lilicorr", [](image & m) { m.f32("dflash.lilicorr_vector_epsilon", 0.0f); }, "dflash.lilicorr_vector_epsilon" },
    { "LiliCorr's width",      "lilicorr", [](image & m) { m.at("lilicorr_hidden.weight").dims = { 64, 9 }; }, "lilicorr_hidden.bias" },
    { "embeddings of another width", "lilicorr", [](image & m) { m.at("lilicorr_token.weight").dims = { 32, 12 }; }, "lilicorr_token.weight" },
    { "no embeddings",         "lilicorr", [](image & m) { m.at("lilicorr_token.weight").name = "other.weight"; }, "lilicorr_token.weight" },
    { "four features",         "lilicorr", [](image & m) { m.at("lilicorr_feature_up.weight").dims = { 4, 12 }; }, "lilicorr_feature_up.weight" },
    { "one rank",              "lilicorr", [](image & m) { m.at("lilicorr_rank_embd").dims = { 12 }; }, "lilicorr_rank_embd" },
    { "ranks of f16",          "lilicorr", [](image & m) { m.at("lilicorr_rank_embd").type = F16; }, "lilicorr_rank_embd" },
    { "distances of two heads", "lilicorr", [](image & m) { m.at("lilicorr_distance_bias").dims = { 15, 2 }; }, "lilicorr_distance_bias" },
    { "no bias of one position", "lilicorr", [](image & m) { m.at("lilicorr_same_bias").name = "other"; }, "lilicorr_same_bias" },
    { "queries and keys alone", "lilicorr", [](image & m) { m.at("lilicorr_blk.0.attn_qkv.weight").dims = { 12, 24 }; }, "lilicorr_blk.0.attn_qkv.weight" },
    { "a feed-forward part of two widths", "lilicorr", [](image & m) { m.at("lilicorr_blk.0.ffn_down.weight").dims = { 20, 12 }; }, "lilicorr_blk.0.ffn_down.weight" },
    { "a product of factors too few", "lilicorr", [](image & m) { m.at("lilicorr_factor_product.weight").name = "other.weight"; }, "lilicorr_factor_product.weight" },
    { "vectors of two lengths", "lilicorr", [](image & m) { m.at("lilicorr_in.weight").dims = { 12, 5 }; }, "lilicorr_in.weight" },
    { "LiliCorr and Domino",   "domino", [](image & m) { for (const tensor & t : lilicorr().tensors) { if (t.name.rfind("lilicorr_", 0) == 0) { m.tensors.push_back(t); } } for (const pair & p : lilicorr().pairs) { if (p.key.rfind("dflash.lilicorr_", 0) == 0) { m.pairs.push_back(p); } } }, "lilicorr_hidden.weight" },
    { "LiliCorr and shares of taps", "lilicorr", [](image & m) { m.tensors[0] = { "layer_fusion.weight", { 2, 1 }, F32 }; for (const char * role : { "attn_v", "attn_k_ctx", "attn_v_ctx" }) { m.tensors.push_back({ std::string("blk.0.") + role + ".weight", { 64, 32 } }); } }, "layer_fusion.weight" },
    { "d2t of LiliCorr",       "lilicorr", [](image & m) { m.tensors.push_back({ "output.weight", { 64, 2 } }); m.tensors.push_back({ "d2t", { 2 }, I64, raw<int64_t>(0) + raw<int64_t>(3) }); }, "d2t" },
    { "convolutions of a kernel alone", "convolved", [](image & m) { m.drop("dflash.conv_group_size"); }, "dflash.conv_group_size" },
    { "convolutions of groups alone", "convolved", [](image & m) { m.u32("dflash.conv_kernel_size", 0); }, "dflash.conv_kernel_size" },
    { "convolutions of a plain drafter", "dflash", [](image & m) { m.tensors.push_back({ "blk.0.ffn_conv_proj.weight", { 64, 16 } }); }, "blk.0.ffn_conv_proj.weight" },
    { "convolutions without keys", "convolved", [](image & m) { m.drop("dflash.conv_kernel_size"); m.drop("dflash.conv_group_size"); }, "blk.0.attn_conv_base" },
    { "convolutions of groups that do not divide", "convolved", [](image & m) { m.u32("dflash.conv_group_size", 24); }, "dflash.conv_group_size" },
    { "convolutions of another kernel", "convolved", [](image & m) { m.u32("dflash.conv_kernel_size", 3); }, "blk.0.attn_conv_base" },
    { "no convolution after attention", "convolved", [](image & m) { m.at("blk.0.ffn_conv_base").name = "other"; }, "blk.0.ffn_conv_base" },
    { "weights of convolutions", "convolved", [](image & m) { m.at("blk.0.ffn_conv_proj.weight").dims = { 64, 8 }; }, "blk.0.ffn_conv_proj.weight" },
    { "Domino and DSpark",     "domino", [](image & m) { m.tensors.push_back({ "markov_w1.weight", { 32, 4 } }); m.tensors.push_back({ "markov_w2.weight", { 32, 4 } }); }, "domino_gru_ih.weight" },
    { "d2t of DFlash 2",       "dflash2", [](image & m) { m.tensors.push_back({ "output.weight", { 64, 2 } }); m.tensors.push_back({ "d2t", { 2 }, I64, raw<int64_t>(0) + raw<int64_t>(3) }); }, "d2t" },
    { "d2t of i32",            "dflash", [](image & m) { m.tensors.push_back({ "d2t", { 4 }, I32 }); }, "d2t" },
    { "d2t beyond the vocabulary", "dflash", [](image & m) { m.tensors.push_back({ "output.weight", { 64, 2 } }); m.tensors.push_back({ "d2t", { 2 }, I64, raw<int64_t>(0) + raw<int64_t>(4) }); }, "d2t" },
    { "d2t without output",    "dflash", [](image & m) { m.tensors.push_back({ "d2t", { 4 }, I64 }); }, "d2t" },
};
// clang-format on

void test_sound(const scratch & files) {
    CHECK(check(files, target().encode()).empty());
    CHECK(check(files, drafter(false).encode()).empty());
    CHECK(check(files, dflare().encode()).empty());
    CHECK(check(files, dspark().encode()).empty());
    CHECK(check(files, domino().encode()).empty());
    CHECK(check(files, convolved().encode()).empty());
    CHECK(check(files, lilicorr().encode()).empty());

    image m = drafter(true);
    m.tensors.push_back({ "token_embd.weight", { 64, 4 } });
    m.tensors.push_back({ "output.weight", { 64, 4 } });
    m.i32s("dflash.rope.dimension_sections", { 8, 0, 0, 0 });
    m.u32("dflash.attention.sliding_window", 64);
    m.i32s("dflash.attention.sliding_window_pattern", { 1 });
    m.u32("dflash.selector_vocab_size", 4);
    m.f32("dflash.backbone_rotary_base", 5e6f);
    m.tensors.push_back({ "blk.0.attn_q.bias", { 64 }, F32 });
    m.tensors.push_back({ "mask_embd.weight", { 64 }, F32 });
    CHECK(check(files, m.encode()).empty());

    m = drafter(false);
    m.tensors.push_back({ "output.weight", { 64, 2 } });
    m.tensors.push_back({ "d2t", { 2 }, I64, raw<int64_t>(0) + raw<int64_t>(3) });
    CHECK(check(files, m.encode()).empty());

    // unusual but valid: version 2, another alignment key, per-layer arrays, an empty token, unknown keys of any type
    m         = target();
    m.version = 2;
    m.u32("general.alignment", 32);
    m.i32s("qwen3.attention.head_count", { 4 });
    m.strs("tokenizer.ggml.tokens", { "", "b", "c", "d" });
    m.put("general.tags", 9, raw<uint32_t>(8) + raw<uint64_t>(0));
    m.put("some.f64", 12, raw(1.0));
    CHECK(check(files, m.encode()).empty());
}

void test_bad(const scratch & files) {
    for (const bad_case & c : bad_cases) {
        image m = base(c.base);
        c.edit(m);
        const std::string error = check(files, m.encode());
        const std::string field = std::string("'") + c.field + "'";
        const bool        named = *c.field == 0 || *c.field == '*' || error.find(field) != std::string::npos;
        if (error.empty() || !named || error.find("model.gguf: ") == std::string::npos) {
            std::printf("%s: error '%s', expected %s\n", c.name, error.c_str(), field.c_str());
        }
        CHECK(!error.empty());
        CHECK(named);
        for (const char ch : error) {
            CHECK(ch >= 0x20 && ch < 0x7f);
        }
    }
}

void test_paths(const scratch & files) {
    std::string error;
    CHECK(!passes((files.dir / "none.gguf").u8string(), error) && error.find("no such file") != std::string::npos);
    CHECK(!passes(files.dir.u8string(), error) && !error.empty());
    CHECK(!passes("", error) && !error.empty());
    CHECK(!passes(files.write(""), error) && !error.empty());
    CHECK(passes(files.write(target().encode(), "m\xc3\xb6"
                                                "del.gguf"),
        error));
}

void test_splits(const scratch & files) {
    image first = target();
    first.put("split.count", 2, raw<uint16_t>(2));
    first.put("split.no", 2, raw<uint16_t>(0));
    first.put("split.tensors.count", 5, raw<int32_t>(5));
    image second;
    second.put("split.no", 2, raw<uint16_t>(1));
    second.tensors = { { "blk.0.ffn_norm.weight", { 64 }, F32 } };

    const std::string path = files.write(first.encode(), "m-00001-of-00002.gguf");
    std::string       error;
    CHECK(!passes(path, error) && error.find("00002-of-00002") != std::string::npos);
    files.write(second.encode(), "m-00002-of-00002.gguf");
    CHECK(passes(path, error));
    second.tensors[0].type = F64;
    files.write(second.encode(), "m-00002-of-00002.gguf");
    CHECK(!passes(path, error) && error.find("ffn_norm") != std::string::npos);
    second.tensors[0] = first.tensors[0];
    files.write(second.encode(), "m-00002-of-00002.gguf");
    CHECK(!passes(path, error) && error.find("in an earlier part") != std::string::npos);
    second.put("split.no", 8, text("1"));
    files.write(second.encode(), "m-00002-of-00002.gguf");
    CHECK(!passes(path, error) && error.find("split.no") != std::string::npos);
}

// A tensor's data is read from its own part.
void test_split_indices(const scratch & files) {
    image first = drafter(false);
    first.put("split.count", 2, raw<uint16_t>(2));
    first.put("split.no", 2, raw<uint16_t>(0));
    first.put("split.tensors.count", 5, raw<int32_t>(5));
    image second;
    second.put("split.no", 2, raw<uint16_t>(1));
    second.tensors = { { "output.weight", { 64, 2 } }, { "d2t", { 2 }, I64, raw<int64_t>(0) + raw<int64_t>(3) } };

    const std::string path = files.write(first.encode(), "d-00001-of-00002.gguf");
    std::string       error;
    files.write(second.encode(), "d-00002-of-00002.gguf");
    CHECK(passes(path, error));
    second.tensors[1].data = raw<int64_t>(0) + raw<int64_t>(4);
    files.write(second.encode(), "d-00002-of-00002.gguf");
    CHECK(!passes(path, error) && error.find("holds the index 4") != std::string::npos);
}

// For embeddings: encoders pass, and files on which their tokenizers and heads would assert are rejected.
void test_encoders(const scratch & files) {
    const auto error_of = [&](const image & m) {
        std::string error;
        CHECK(passes(files.write(m.encode()), error, gguf_use::embed) == error.empty());
        return error;
    };
    CHECK(error_of(encoder()).empty());
    image language = target();   // can be used for embeddings, too
    CHECK(error_of(language).find("bos_token_id") != std::string::npos);
    language.u32("tokenizer.ggml.bos_token_id", 3);
    CHECK(error_of(language).empty());
    CHECK(error_of(windowed("modern-bert")).empty());
    CHECK(error_of(windowed("gemma-embedding")).empty());
    CHECK(error_of(unigrams(charsmap(0))).empty());
    std::string error;
    CHECK(!passes(files.write(encoder().encode()), error));
    CHECK(error.find("gives embeddings, not text") != std::string::npos);

    struct encoder_case {
        image                        base;
        std::function<void(image &)> edit;
        const char *                 what;
    };

    // clang-format off
    const std::vector<encoder_case> cases = {
        { drafter(false), [](image &) {}, "gives no embeddings" },
        { encoder(), [](image & m) { m.u32("bert.attention.key_length", 32); }, "attention.head_count" },
        { encoder(), [](image & m) { m.u32("bert.embedding_length_out", 128); }, "embedding_length_out" },
        { encoder(), [](image & m) { m.u32("bert.classifier.pooling_type", 9); }, "classifier.pooling_type" },
        { encoder(), [](image & m) { m.tensors.pop_back(); }, "classifier.output_labels" },
        { encoder(), [](image & m) { m.at("cls.bias").type = F16; }, "cls.bias" },
        { encoder(), [](image & m) { m.at("token_types.weight").type = F16; }, "token_types.weight" },
        { encoder(), [](image & m) { m.drop("tokenizer.ggml.bos_token_id"); }, "bos_token_id" },
        { encoder(), [](image & m) { m.u32("tokenizer.ggml.seperator_token_id", 4); }, "seperator_token_id" },
        { encoder(), [](image & m) { m.str("tokenizer.ggml.model", "llama"); }, "has no token <0x00>" },
        { encoder(), [](image & m) { m.str("tokenizer.ggml.model", "rwkv"); }, "tokenizer.ggml.model" },
        { windowed("modern-bert"), [](image & m) { m.u32("modern-bert.attention.head_count_kv", 2); }, "head_count_kv" },
        { windowed("modern-bert"), [](image & m) { m.u32("modern-bert.attention.sliding_window_pattern", 0); }, "sliding_window_pattern" },
        { windowed("gemma-embedding"), [](image & m) { m.u32("gemma-embedding.attention.sliding_window_pattern", 3); }, "sliding_window_pattern" },
        { windowed("gemma-embedding"), [](image & m) { m.tensors.push_back({ "dense_2.weight", { 64, 96 } }); }, "dense_3.weight" },
        { unigrams(charsmap(3)), [](image &) {}, "precompiled_charsmap" },
        { unigrams(charsmap(0, false)), [](image &) {}, "precompiled_charsmap" },
        { unigrams("xx"), [](image &) {}, "precompiled_charsmap" },
    };
    // clang-format on
    for (const encoder_case & c : cases) {
        image m = c.base;
        c.edit(m);
        const std::string found = error_of(m);
        if (found.find(c.what) == std::string::npos) {
            std::printf("expected '%s', found '%s'\n", c.what, found.c_str());
        }
        CHECK(found.find(c.what) != std::string::npos);
    }
}

// Projectors: what mtmd divides by, indexes with and multiplies, and the tensors that its graphs read.
void test_projectors(const scratch & files) {
    const auto error_of = [&](const image & m) { return check(files, m.encode(), gguf_use::project); };
    for (const char * kind : { "mlp", "resampler", "qwen2.5vl_merger", "qwen3vl_merger", "gemma3", "pixtral" }) {
        CHECK(error_of(projector(kind)).empty());
    }
    for (const char * kind : { "qwen2a", "ultravox", "lfm2a" }) {
        CHECK(error_of(projector(kind, true)).empty());
    }
    CHECK(check(files, projector("mlp").encode()).find("general.architecture") != std::string::npos);
    CHECK(error_of(target()).find("is no projector") != std::string::npos);

    const auto traits = [&](const image & m) { return traits_of(gguf_file(files.write(m.encode()))); };
    CHECK(traits(projector("qwen2.5vl_merger")).masks_pairs && !traits(projector("qwen3vl_merger")).masks_pairs);
    CHECK(traits(projector("lfm2a", true)).hears_whole && !traits(projector("qwen2a", true)).hears_whole);

    struct projector_case {
        const char *                 kind;
        std::function<void(image &)> edit;
        const char *                 what;
    };

    // clang-format off
    const std::vector<projector_case> cases = {
        { "mlq", [](image &) {}, "is 'mlq', which is not known" },
        { "qwen2a", [](image &) {}, "which encodes sound" },
        { "mlp", [](image & m) { m.drop("clip.projector_type"); }, "clip.vision.projector_type" },
        { "mlp", [](image & m) { m.u32("clip.projector_type", 1); }, "clip.projector_type" },
        { "mlp", [](image & m) { m.drop("clip.has_vision_encoder"); }, "has no encoder" },
        { "mlp", [](image & m) { m.flag("clip.has_audio_encoder", true); }, "which encodes pictures" },
        { "mlp", [](image & m) { m.flag("clip.has_gen_audio_encoder", true); }, "that speak" },
        { "mlp", [](image & m) { m.put("split.count", 2, raw<uint16_t>(1)); }, "must be one file" },
        { "mlp", [](image & m) { m.drop("clip.vision.embedding_length"); }, "clip.vision.embedding_length" },
        { "mlp", [](image & m) { m.u32("clip.vision.block_count", 0); }, "clip.vision.block_count" },
        { "mlp", [](image & m) { m.u32("clip.vision.attention.head_count", 0); }, "clip.vision.attention.head_count" },
        { "mlp", [](image & m) { m.u32("clip.vision.attention.head_count", 5); }, "clip.vision.attention.head_count" },
        { "mlp", [](image & m) { m.u32("clip.vision.attention.head_count", 32); }, "clip.vision.attention.head_count" },
        { "mlp", [](image & m) { m.u32("clip.vision.attention.head_count_kv", 3); }, "does not divide the 4 heads" },
        { "mlp", [](image & m) { m.f32("clip.vision.attention.layer_norm_epsilon", -1); }, "layer_norm_epsilon" },
        { "mlp", [](image & m) { m.u32("clip.vision.patch_size", 0); }, "clip.vision.patch_size" },
        { "mlp", [](image & m) { m.u32("clip.vision.image_size", 0); }, "clip.vision.image_size" },
        { "mlp", [](image & m) { m.u32("clip.vision.image_size", 8192); }, "patches are more than" },
        { "pixtral", [](image & m) { m.u32("clip.vision.spatial_merge_size", 16); }, "clip.vision.patch_size" },
        { "mlp", [](image & m) { m.drop("clip.vision.image_mean"); }, "clip.vision.image_mean" },
        { "mlp", [](image & m) { m.i32s("clip.vision.image_std", { 1, 1, 1 }); }, "clip.vision.image_std" },
        { "mlp", [](image & m) { m.i32s("clip.vision.image_grid_pinpoints", { 56, 57 }); }, "image_grid_pinpoints" },
        { "mlp", [](image & m) { m.i32s("clip.vision.image_grid_pinpoints", { 56, 56000 }); }, "image_grid_pinpoints" },
        { "pixtral", [](image & m) { m.u32("clip.vision.image_size", 0); m.i32s("clip.vision.image_grid_pinpoints", { 0 }); }, "image_grid_pinpoints" },
        { "mlp", [](image & m) { m.u32("clip.vision.feature_layer", 1); }, "clip.vision.feature_layer" },
        { "mlp", [](image & m) { m.at("v.patch_embd.weight").name = "x"; }, "v.patch_embd.weight" },
        { "mlp", [](image & m) { m.at("mm.2.weight").name = "x"; }, "mm.2.weight" },
        { "mlp", [](image & m) { m.at("mm.2.weight").name = "mm.3.weight"; }, "mm.3.bias" },
        { "mlp", [](image & m) { m.at("mm.2.weight").type = I32; }, "mm.2.weight" },
        { "internvl", [](image & m) { m.u32("clip.vision.preproc_max_tiles", 1 << 30); }, "preproc_max_tiles" },
        { "idefics3", [](image & m) { m.u32("clip.vision.preproc_image_size", 8192); }, "preproc_image_size" },
        { "qwen2.5vl_merger", [](image & m) { m.u32("clip.vision.spatial_merge_size", 4); }, "it must be 2" },
        { "qwen2.5vl_merger", [](image & m) { m.u32("clip.vision.window_size", 14); }, "clip.vision.window_size" },
        { "phi4", [](image & m) { m.u32("clip.vision.image_min_pixels", 9); m.u32("clip.vision.image_max_pixels", 8); }, "image_min_pixels" },
        { "step3vl", [](image & m) { m.u32("clip.vision.patch_size", 28); }, "tiles of 504 pixels" },
        { "gemma3nv", [](image & m) { m.tensors.push_back({ "v.blk.0.1.attn.query.proj.weight", { 1, 1, 64, 64 } }); }, "v.blk.0.1.attn." },
        { "gemma4v", [](image &) {}, "v.blk.0.attn_q.weight" },
        { "hunyuanvl", [](image & m) { m.at("v.position_embd.weight").type = F16; }, "v.position_embd.weight" },
        { "granite4_vision", [](image & m) { m.u32("clip.vision.projector.window_side", 3); }, "window_side" },
        { "granite4_vision", [](image & m) { m.u32("clip.vision.projector.window_side", 2); }, "clip.vision.feature_layer" },
        { "granite4_vision", [](image & m) { sample(m, 1, 1); }, "makes 4 queries of 4 patches" },
        { "granite4_vision", [](image & m) { m.u32("clip.vision.image_size", 14); sample(m, 1, 1); }, "makes 1 queries of 1 patches" },
        { "deepseekocr", [](image & m) { m.tensors.push_back({ "v.image_newline", { 64 }, F32 }); }, "sam.embedding_length" },
    };
    const std::vector<projector_case> sounds = {
        { "mlp", [](image &) {}, "which encodes pictures" },
        { "qwen2a", [](image & m) { m.u32("clip.audio.num_mel_bins", 512); }, "num_mel_bins" },
        { "qwen2a", [](image & m) { m.tensors.clear(); }, "a.position_embd.weight" },
        { "ultravox", [](image & m) { m.u32("clip.audio.projector.stack_factor", 0); }, "stack_factor" },
        { "mimo_audio", [](image & m) { m.u32("clip.audio.local_group_size", 1 << 20); }, "local_group_size" },
        { "gemma4a", [](image &) {}, "mm.a.input_projection.weight" },
        { "granite_speech", [](image &) {}, "projector.head_count" },
    };
    // clang-format on
    const auto expect = [&](const projector_case & c, bool hears) {
        image m = projector(c.kind, hears);
        c.edit(m);
        const std::string found = error_of(m);
        if (found.find(c.what) == std::string::npos) {
            std::printf("expected '%s', found '%s'\n", c.what, found.c_str());
        }
        CHECK(found.find(c.what) != std::string::npos);
    };
    for (const projector_case & c : cases) {
        expect(c, false);
    }
    for (const projector_case & c : sounds) {
        expect(c, true);
    }
}

// Distances between frames are rows of a table, and windows of them have queries.
void test_speech(const scratch & files) {
    image m = projector("granite_speech", true);
    m.u32("clip.audio.projector.head_count", 4);
    m.u32("clip.audio.projector.window_size", 15);
    m.u32("clip.audio.projector.downsample_rate", 5);
    m.u32("clip.audio.chunk_size", 16);
    m.u32("clip.audio.max_pos_emb", 16);
    CHECK(check(files, m.encode(), gguf_use::project).empty());
    const std::pair<const char *, uint32_t> wrong[] = { { "projector.head_count", 5 },
        { "projector.downsample_rate", 16 }, { "chunk_size", 0 }, { "max_pos_emb", 15 }, { "num_mel_bins", 81 } };
    for (const auto & [key, value] : wrong) {
        image other = m;
        other.u32(std::string("clip.audio.") + key, value);
        CHECK(check(files, other.encode(), gguf_use::project).find(key) != std::string::npos);
    }
}

// Arbitrary bytes: the sanitizers watch, and every prefix of a valid file is rejected.
void test_any_bytes(const scratch & files, int n_files) {
    std::mt19937 rng(1);
    for (const char * name : { "target", "dflash2" }) {
        const std::string sound = base(name).encode();
        for (size_t n = 0; n < sound.size(); n += 1 + n / 64) {
            CHECK(!check(files, sound.substr(0, n)).empty());
        }
        for (int i = 0; i < n_files; ++i) {
            std::string bytes = sound;
            for (uint32_t k = rng() % 4; k < 4; ++k) {
                bytes[rng() % 1400 % bytes.size()] = static_cast<char>(rng() % 3 ? rng() : 0xff);
            }
            check(files, bytes);
        }
    }
}

}   // namespace

int main(int argc, char ** argv) {
    const scratch files;
    test_sound(files);
    test_bad(files);
    test_paths(files);
    test_splits(files);
    test_split_indices(files);
    test_encoders(files);
    test_projectors(files);
    test_speech(files);
    test_any_bytes(files, argc > 1 ? std::atoi(argv[1]) : 400);
    return TEST_RESULT;
}
