#include "files/gguf_file.h"

#include "base/files.h"
#include "base/text.h"

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace dflash {

namespace {

constexpr uint64_t MAX_KEY_LENGTH    = 65535;   // docs/gguf.md of ggml
constexpr uint64_t MAX_STRING_LENGTH = 1ull << 28;
constexpr uint64_t MAX_TENSOR_NAME   = 63;   // GGML_MAX_NAME - 1
constexpr uint64_t MAX_ALIGNMENT     = 1ull << 20;
constexpr uint64_t MIN_ALIGNMENT     = 32;   // TENSOR_ALIGNMENT of ggml-backend: mapped buffers must have it

// By their numbers, from those in the comments on.
constexpr ggml_type_info NO_TYPE      = { nullptr, 0, 0 };
constexpr ggml_type_info GGML_TYPES[] = {
    { "f32", 1, 4 }, { "f16", 1, 2 }, { "q4_0", 32, 18 }, { "q4_1", 32, 20 },                      // 0
    NO_TYPE, NO_TYPE, { "q5_0", 32, 22 }, { "q5_1", 32, 24 },                                      // 4
    { "q8_0", 32, 34 }, { "q8_1", 32, 36 }, { "q2_K", 256, 84 }, { "q3_K", 256, 110 },             // 8
    { "q4_K", 256, 144 }, { "q5_K", 256, 176 }, { "q6_K", 256, 210 }, { "q8_K", 256, 292 },        // 12
    { "iq2_xxs", 256, 66 }, { "iq2_xs", 256, 74 }, { "iq3_xxs", 256, 98 }, { "iq1_s", 256, 50 },   // 16
    { "iq4_nl", 32, 18 }, { "iq3_s", 256, 110 }, { "iq2_s", 256, 82 }, { "iq4_xs", 256, 136 },     // 20
    { "i8", 1, 1 }, { "i16", 1, 2 }, { "i32", 1, 4 }, { "i64", 1, 8 },                             // 24
    { "f64", 1, 8 }, { "iq1_m", 256, 56 }, { "bf16", 1, 2 }, NO_TYPE,                              // 28
    NO_TYPE, NO_TYPE, { "tq1_0", 256, 54 }, { "tq2_0", 256, 66 },                                  // 32
    NO_TYPE, NO_TYPE, NO_TYPE, { "mxfp4", 32, 17 },                                                // 36
    { "nvfp4", 64, 36 }, { "q1_0", 128, 18 }, { "q2_0", 64, 18 },                                  // 40
};

constexpr const char * TYPE_NAMES[] = { "u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64",
    "i64", "f64" };
constexpr uint32_t     TYPE_SIZES[] = { 1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8 };

template <typename T> T load(const uint8_t * bytes) {
    T value;
    std::memcpy(&value, bytes, sizeof(T));   // GGUF and every supported host are little endian
    return value;
}

// Reads forward through the header. left_ counts the file's remaining bytes: no read or allocation exceeds it.
class header_reader {
  public:
    header_reader(std::ifstream & stream, const std::string & path, uint64_t size) :
        stream_(stream), path_(path), left_(size) {}

    uint64_t    position = 0;
    std::string where    = "the header";   // what is being read, for error messages

    template <class... Parts> [[noreturn]] void fail(const Parts &... what) const {
        throw gguf_error(concat(path_, ": ", what...));
    }

    template <class... Parts> void fail_if(bool wrong, const Parts &... what) const {
        if (wrong) {
            fail(what...);
        }
    }

    void read(void * out, uint64_t n) {
        require(n);
        // uses the buffer directly: istream::read() has an overhead per call, and a vocabulary is half a million calls
        if (stream_.rdbuf()->sgetn((char *) out, (std::streamsize) n) != (std::streamsize) n) {
            fail("cannot be read past byte ", position);
        }
        position += n;
        left_ -= n;
    }

    void skip(uint64_t n) {
        require(n);
        stream_.rdbuf()->pubseekoff((std::streamoff) n, std::ios::cur, std::ios::in);
        position += n;
        left_ -= n;
    }

    template <typename T> T number() {
        uint8_t bytes[sizeof(T)];
        read(bytes, sizeof(T));
        return load<T>(bytes);
    }

    std::string string(uint64_t max_length, const char * what) {
        std::string text;
        string(text, max_length, what);
        return text;
    }

    void string(std::string & text, uint64_t max_length, const char * what) {
        const uint64_t n = number<uint64_t>();
        if (n > max_length) {
            fail(what, " of ", where, " is ", n, " bytes long; at most ", max_length, " are allowed");
        }
        require(n);
        text.resize((size_t) n);
        read(text.data(), n);
    }

    // Throws unless the file has `n` more items of at least `bytes` bytes each.
    void require(uint64_t n, uint64_t bytes = 1) const {
        if (n > left_ / bytes) {
            fail("is cut off or damaged: ", where, " claims more bytes than the ", left_,
                " that are left; download or convert the file again");
        }
    }

  private:
    std::ifstream &     stream_;
    const std::string & path_;
    uint64_t            left_;
};

gguf_type read_type(header_reader & in) {
    const uint32_t type = in.number<uint32_t>();
    in.fail_if(type > (uint32_t) gguf_type::f64, in.where, " has the unknown type ", type);
    return (gguf_type) type;
}

gguf_value read_value(header_reader & in) {
    gguf_value value;
    value.type = read_type(in);
    if (value.type == gguf_type::array) {
        value.is_array = true;
        value.type     = read_type(in);
        value.count    = in.number<uint64_t>();
        in.fail_if(
            value.type == gguf_type::array, in.where, " is an array of arrays; llama.cpp knows only flat arrays");
    }
    if (value.type == gguf_type::string) {
        in.require(value.count, sizeof(uint64_t));
        if (!value.is_array) {
            value.text = in.string(MAX_STRING_LENGTH, "the text");
            return value;
        }
        value.hashes.reserve((size_t) value.count);
        std::string text;
        for (uint64_t i = 0; i < value.count; ++i) {
            in.string(text, MAX_STRING_LENGTH, "an element");
            value.hashes.push_back(gguf_hash(text.c_str()));
        }
        return value;
    }
    const uint64_t item = TYPE_SIZES[(uint32_t) value.type];
    in.require(value.count, item);
    if (value.is_array && value.count > (item == 1 ? gguf_value::max_bytes : gguf_value::max_numbers)) {
        in.skip(value.count * item);
        return value;
    }
    value.bytes.resize((size_t) (value.count * item));
    in.read(value.bytes.data(), value.bytes.size());
    return value;
}

void check_name(const header_reader & in, const std::string & name, const char * what) {
    in.fail_if(name.empty() || name.find('\0') != std::string::npos, what, " '", gguf_printable(name),
        "' is empty or holds a zero byte");
}

gguf_tensor read_tensor(header_reader & in, uint64_t index) {
    gguf_tensor tensor;
    in.where    = "the name of tensor " + std::to_string(index);
    tensor.name = in.string(MAX_TENSOR_NAME, "the text");
    check_name(in, tensor.name, "the tensor name");
    in.where = "tensor '" + gguf_printable(tensor.name) + "'";

    const uint32_t n_dims = in.number<uint32_t>();
    in.fail_if(n_dims > 4, in.where, " has ", n_dims, " dimensions; at most 4 are allowed");
    uint64_t elements = 1;
    for (uint32_t i = 0; i < n_dims; ++i) {
        tensor.ne[i] = in.number<uint64_t>();
        in.fail_if(tensor.ne[i] == 0 || tensor.ne[i] > (uint64_t) INT64_MAX / elements, in.where,
            " has the impossible dimension ", tensor.ne[i]);
        elements *= tensor.ne[i];
    }

    tensor.type                 = in.number<uint32_t>();
    const ggml_type_info * type = ggml_type_find(tensor.type);
    in.fail_if(!type, in.where, " has the unknown type ", tensor.type);
    in.fail_if(tensor.ne[0] % type->block != 0, in.where, " has rows of ", tensor.ne[0], " elements; type ", type->name,
        " needs a multiple of ", type->block);
    in.fail_if(elements / type->block > (uint64_t) INT64_MAX / type->bytes, in.where, " is larger than any file");
    tensor.n_bytes = elements / type->block * type->bytes;
    tensor.offset  = in.number<uint64_t>();
    return tensor;
}

uint64_t pad(uint64_t n, uint64_t alignment) { return (n + alignment - 1) / alignment * alignment; }

uint64_t read_alignment(const header_reader & in, const gguf_file & file) {
    const gguf_value * value = file.find("general.alignment");
    if (!value) {
        return MIN_ALIGNMENT;
    }
    const bool     typed     = !value->is_array && value->type == gguf_type::u32;
    const uint64_t alignment = typed ? (uint64_t) value->integer() : 0;
    in.fail_if(alignment < MIN_ALIGNMENT || alignment > MAX_ALIGNMENT || (alignment & (alignment - 1)) != 0,
        "key 'general.alignment' must be a u32 power of two from ", MIN_ALIGNMENT, " to ", MAX_ALIGNMENT);
    return alignment;
}

void read_version(header_reader & in) {
    char magic[4];
    in.read(magic, sizeof(magic));
    in.fail_if(std::memcmp(magic, "GGUF", 4) != 0, "is not a GGUF file (it does not start with 'GGUF')");
    const uint32_t version = in.number<uint32_t>();
    in.fail_if(
        (version & 0xFFFF) == 0, "was written for big-endian machines; convert the model again on a little-endian one");
    in.fail_if(version != 2 && version != 3, "has GGUF version ", version, "; versions 2 and 3 are supported");
}

void read_values(header_reader & in, uint64_t n_values, gguf_file & file) {
    for (uint64_t i = 0; i < n_values; ++i) {
        in.where              = "key " + std::to_string(i);
        const std::string key = in.string(MAX_KEY_LENGTH, "the name");
        check_name(in, key, "the key");
        in.where = "key '" + gguf_printable(key) + "'";
        in.fail_if(!file.values.emplace(key, read_value(in)).second, in.where, " occurs twice");
    }
}

// The data section has the order of the table, without gaps except for padding (ggml/src/gguf.cpp requires that).
void place_tensors(const header_reader & in, const std::vector<gguf_tensor> & table, gguf_file & file) {
    const uint64_t alignment = read_alignment(in, file), data = pad(in.position, alignment), size = file.size;
    uint64_t       expected = 0;
    for (gguf_tensor tensor : table) {
        const std::string who = "tensor '" + gguf_printable(tensor.name) + "'";
        in.fail_if(
            tensor.offset != expected, who, " lies at offset ", tensor.offset, " of the data, expected ", expected);
        in.fail_if(data > size || expected > size - data || tensor.n_bytes > size - data - expected,
            "is cut off: ", who, " ends behind the file's ", size, " bytes; download or convert the file again");
        expected = pad(expected + tensor.n_bytes, alignment);
        tensor.offset += data;
        tensor.path = file.path;
        in.fail_if(!file.tensors.emplace(tensor.name, tensor).second, who, " occurs twice");
    }
}

}   // namespace

const char * gguf_type_name(gguf_type type) { return TYPE_NAMES[(uint32_t) type]; }

const ggml_type_info * ggml_type_find(uint32_t type) {
    return type < std::size(GGML_TYPES) && GGML_TYPES[type].name != nullptr ? &GGML_TYPES[type] : nullptr;
}

bool gguf_value::is_integer() const {
    return type != gguf_type::f32 && type != gguf_type::f64 && type != gguf_type::string;
}

int64_t gguf_value::integer(uint64_t i) const {
    const uint8_t * p = bytes.data() + i * TYPE_SIZES[(uint32_t) type];
    switch (type) {
        case gguf_type::u8:
        case gguf_type::boolean: return load<uint8_t>(p);
        case gguf_type::i8: return load<int8_t>(p);
        case gguf_type::u16: return load<uint16_t>(p);
        case gguf_type::i16: return load<int16_t>(p);
        case gguf_type::u32: return load<uint32_t>(p);
        case gguf_type::i32: return load<int32_t>(p);
        case gguf_type::u64: return load<uint64_t>(p) > (uint64_t) INT64_MAX ? -1 : load<int64_t>(p);
        case gguf_type::i64: return load<int64_t>(p);
        default: return -1;
    }
}

double gguf_value::real(uint64_t i) const {
    switch (type) {
        case gguf_type::f32: return load<float>(bytes.data() + i * sizeof(float));
        case gguf_type::f64: return load<double>(bytes.data() + i * sizeof(double));
        default: return (double) integer(i);
    }
}

gguf_file::gguf_file(const std::string & path_in) : path(path_in) {
    const std::filesystem::path file = file_path(path);
    std::error_code             ec;
    if (!std::filesystem::is_regular_file(file, ec)) {
        throw gguf_error(path + ": no such file; give the path of a .gguf file");
    }
    size = std::filesystem::file_size(file, ec);
    std::ifstream stream(file, std::ios::binary);
    if (ec || !stream) {
        throw gguf_error(path + ": cannot be opened; check its permissions");
    }

    header_reader in(stream, path, size);
    read_version(in);
    const uint64_t n_tensors = in.number<uint64_t>();
    const uint64_t n_values  = in.number<uint64_t>();
    in.where                 = "the key table";
    in.require(n_values, 13);   // shortest pair: length, one byte, type
    in.where = "the tensor table";
    in.require(n_tensors, 25);   // shortest entry: length, one byte, dimensions, type, offset
    read_values(in, n_values, *this);
    std::vector<gguf_tensor> table;
    for (uint64_t i = 0; i < n_tensors; ++i) {
        table.push_back(read_tensor(in, i));
    }
    place_tensors(in, table, *this);
}

const gguf_value * gguf_file::find(const std::string & key) const {
    const auto it = values.find(key);
    return it == values.end() ? nullptr : &it->second;
}

const gguf_tensor * gguf_file::find_tensor(const std::string & name) const {
    const auto it = tensors.find(name);
    return it == tensors.end() ? nullptr : &it->second;
}

static void read_bytes(std::ifstream & stream, const gguf_tensor & tensor, uint64_t from, uint8_t * to, uint64_t n) {
    stream.seekg((std::streamoff) (tensor.offset + from));
    stream.read(reinterpret_cast<char *>(to), (std::streamsize) n);
    if (!stream) {
        throw gguf_error(tensor.path + ": tensor '" + gguf_printable(tensor.name) + "' cannot be read");
    }
}

std::vector<uint8_t> gguf_read(const gguf_tensor & tensor) {
    std::vector<uint8_t> bytes((size_t) tensor.n_bytes);
    std::ifstream        stream(file_path(tensor.path), std::ios::binary);
    read_bytes(stream, tensor, 0, bytes.data(), bytes.size());
    return bytes;
}

std::vector<uint8_t> gguf_read_rows(const gguf_tensor & matrix, const std::vector<int32_t> & rows) {
    const uint64_t       row_bytes = matrix.n_bytes / matrix.ne[1];
    std::vector<uint8_t> bytes((size_t) row_bytes * rows.size());
    std::ifstream        stream(file_path(matrix.path), std::ios::binary);
    for (size_t first = 0, end = 0; first < rows.size(); first = end) {
        for (end = first + 1; end < rows.size() && rows[end] == rows[end - 1] + 1; ++end) {}
        read_bytes(stream, matrix, row_bytes * (uint64_t) rows[first], bytes.data() + row_bytes * first,
            row_bytes * (end - first));
    }
    return bytes;
}

std::vector<std::string> gguf_parts(const std::string & path) {
    static const std::string tail = "-00001-of-00000.gguf";
    const size_t             size = path.size() < tail.size() ? 0 : path.size() - tail.size();
    int                      n = 0, n_read = 0;
    if (size == 0 || std::sscanf(path.c_str() + size, "-00001-of-%5d.gguf%n", &n, &n_read) != 1 ||
        n_read != (int) tail.size() || n < 1) {
        return { path };
    }
    std::vector<std::string> parts;
    for (int i = 1; i <= n; ++i) {
        char name[64];
        std::snprintf(name, sizeof(name), "-%05d-of-%05d.gguf", i, n);
        parts.push_back(path.substr(0, size) + name);
    }
    return parts;
}

uint64_t gguf_hash(const char * text) {
    uint64_t hash = 14695981039346656037ull;
    for (; *text != '\0'; ++text) {
        hash = (hash ^ (uint8_t) (*text)) * 1099511628211ull;
    }
    return hash;
}

std::string gguf_printable(const std::string & text) {
    constexpr size_t max_length = 80;
    std::string      out;
    for (const char c : text.substr(0, max_length)) {
        char escaped[5];
        std::snprintf(escaped, sizeof(escaped), "\\x%02x", (uint8_t) c);
        out += c >= 0x20 && c < 0x7f ? std::string(1, c) : escaped;
    }
    return text.size() > max_length ? out + "..." : out;
}

}   // namespace dflash
