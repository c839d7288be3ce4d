// A strict reader of GGUF headers.
//
// Reads everything before the tensor data. Every length is compared with the bytes left in the file before anything is
// allocated, so a small file cannot make it allocate much memory. Uses only the standard library, so that it can be
// tested and fuzzed alone. Format: ggml/src/gguf.cpp and docs/gguf.md of ggml. Stricter than llama.cpp where its
// later stages would abort.

#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

namespace dflash {

// What is wrong with a file: one sentence that names it, and the key or tensor.
struct gguf_error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

enum class gguf_type : uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };

const char * gguf_type_name(gguf_type type);

struct gguf_value {
    gguf_type             type     = gguf_type::u8;   // of the value, or of an array's elements
    bool                  is_array = false;
    uint64_t              count    = 1;
    std::string           text;     // a scalar string
    std::vector<uint8_t>  bytes;    // numbers, little endian; empty for longer arrays
    std::vector<uint64_t> hashes;   // one per string of an array, like C strings: up to the first NUL

    static constexpr uint64_t max_numbers = 1 << 16;
    static constexpr uint64_t max_bytes   = 1 << 22;   // for numbers of one byte, such as a tokenizer's charsmap

    bool    is_integer() const;
    int64_t integer(uint64_t i = 0) const;   // -1 for u64 values above INT64_MAX
    double  real(uint64_t i = 0) const;
};

struct ggml_type_info {
    const char * name;
    uint32_t     block;   // elements per block
    uint32_t     bytes;   // bytes per block
};

// nullptr for unknown types
const ggml_type_info * ggml_type_find(uint32_t type);

struct gguf_tensor {
    std::string name;
    uint64_t    ne[4]   = { 1, 1, 1, 1 };
    uint32_t    type    = 0;
    uint64_t    offset  = 0;   // from the start of the file
    uint64_t    n_bytes = 0;
    std::string path;   // the file, which may be a part of a split model

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

// Data of one tensor. The caller limits the size. Throws gguf_error.
std::vector<uint8_t> gguf_read(const gguf_tensor & tensor);
// Some rows of a matrix, which must be rising and there. Throws gguf_error.
std::vector<uint8_t> gguf_read_rows(const gguf_tensor & matrix, const std::vector<int32_t> & rows);

// All parts of a split model, from the name of its first part ("*-00001-of-0000N.gguf", as in llama.cpp), whether they
// exist or not; any other name is returned alone.
std::vector<std::string> gguf_parts(const std::string & path);

// FNV-1a of the bytes before the first zero; equal texts have equal hashes
uint64_t gguf_hash(const char * text);

// Makes text from a file safe for a message: escapes control bytes and non-ASCII, cuts long text.
std::string gguf_printable(const std::string & text);

}   // namespace dflash
