// gguf_file.h - a strict reader of GGUF headers.
//
// Reads everything up to the tensor data. Every length is compared with the bytes that the file still has before
// anything is allocated, so that a small file cannot ask for much memory. Standard library only, so that it can be
// tested and fuzzed alone. Format: ggml/src/gguf.cpp and docs/gguf.md of llama.cpp. Stricter than llama.cpp where its
// later stages would abort.

#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

namespace dflash {

// What is wrong with a file: one sentence, and the key or tensor it is about ("" for the file as a whole).
struct gguf_error : std::runtime_error {
    std::string field;
    gguf_error(const std::string & message, const std::string & field) : std::runtime_error(message), field(field) {}
};

enum class gguf_type : uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };

const char * gguf_type_name(gguf_type type);

struct gguf_value {
    gguf_type             type     = gguf_type::u8;   // of the value, or of the elements if is_array
    bool                  is_array = false;
    uint64_t              count    = 1;
    std::string           text;     // a scalar string
    std::vector<uint8_t>  bytes;    // numbers, little endian; empty for longer arrays
    std::vector<uint64_t> hashes;   // one per string of an array, as C code sees it: up to the first NUL

    static constexpr uint64_t max_numbers = 1 << 16;
    static constexpr uint64_t max_bytes   = 1 << 22;   // of numbers of one byte: a tokenizer's table of characters

    bool    is_integer() const;
    int64_t integer(uint64_t i = 0) const;   // u64 values above INT64_MAX come back as -1
    double  real(uint64_t i = 0) const;
};

struct ggml_type_info {
    const char * name;
    uint32_t     block;   // elements per block
    uint32_t     bytes;   // bytes per block
};

// nullptr for numbers that name no type
const ggml_type_info * ggml_type_find(uint32_t type);

struct gguf_tensor {
    std::string name;
    uint64_t    ne[4]   = { 1, 1, 1, 1 };
    uint32_t    type    = 0;
    uint64_t    offset  = 0;   // from the start of the file
    uint64_t    n_bytes = 0;
    std::string path;   // of the file, a part of a split model or all of it

    bool is_vector() const { return ne[1] == 1 && ne[2] == 1 && ne[3] == 1; }
};

struct gguf_file {
    std::string                                  path;
    uint64_t                                     size = 0;
    std::unordered_map<std::string, gguf_value>  values;
    std::unordered_map<std::string, gguf_tensor> tensors;

    // Reads and checks the header. Throws gguf_error.
    explicit gguf_file(const std::string & path);

    const gguf_value *  find(const std::string & key) const;
    const gguf_tensor * find_tensor(const std::string & name) const;
};

// Data of one tensor. The caller bounds the size. Throws gguf_error.
std::vector<uint8_t> gguf_read(const gguf_tensor & tensor);

// Every part of a split model, by the name of its first ("*-00001-of-0000N.gguf", as llama.cpp finds them), whether
// they are there or not; of any other name that file alone.
std::vector<std::string> gguf_parts(const std::string & path);

// FNV-1a of the bytes up to the first zero; equal texts have equal hashes
uint64_t gguf_hash(const char * text);

// Text from a file made fit for a message: control bytes and everything beyond ASCII escaped, long text cut.
std::string gguf_printable(const std::string & text);

}   // namespace dflash
