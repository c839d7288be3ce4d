#include "cache/slot_file.h"

#include "base/files.h"
#include "base/text.h"
#include "files/gguf_file.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <vector>

namespace dflash {

namespace {

constexpr char MAGIC[8] = { 'D', 'F', 'S', 'L', 'O', 'T', '0', '2' };

struct head {
    char     magic[8];
    uint64_t file_size;
    uint64_t target, drafter;
    uint64_t state_size, ring_size, n_taps;   // bytes, bytes, floats
    uint64_t segment_size;                    // of the drafter's history
    int32_t  n_tokens, n_asked, n_checkpoints;
    int32_t  past_begin, n_segments;
    int32_t  ring_begin, ring_end;
    int32_t  taps_pos, taps_rows;
    int32_t  zero;
};

// FNV-1a over words of 8 bytes: as fast as a disk.
class checksum {
  public:
    void add(const void * data, size_t size) {
        const auto * from = (const uint8_t *) data;
        for (; size >= 8; from += 8, size -= 8) {
            uint64_t word;
            std::memcpy(&word, from, 8);
            mix(word);
        }
        uint64_t rest = 0;
        if (size > 0) {
            std::memcpy(&rest, from, size);
        }
        mix(rest);
    }
    uint64_t value() const { return value_; }

  private:
    void mix(uint64_t word) {
        value_ = (value_ ^ word) * 0x100000001B3ull;
        value_ ^= value_ >> 29;
    }
    uint64_t value_ = 0xCBF29CE484222325ull;
};

// Clients see this text, so it names no path.
[[noreturn]] void refuse_file(const std::string & why) { throw std::runtime_error("the file " + why); }

template <class... Parts> void refuse_file_if(bool wrong, const Parts &... why) {
    if (wrong) {
        refuse_file(concat(why...));
    }
}

// ---- writing ----

class writer {
  public:
    explicit writer(const std::string & path) : out_(file_path(path), std::ios::binary | std::ios::trunc) {}

    void write(const void * data, size_t size) {
        out_.write((const char *) data, (std::streamsize) size);
        sum_.add(data, size);
        size_ += size;
    }
    size_t finish() {
        const uint64_t sum = sum_.value();
        out_.write((const char *) &sum, sizeof(sum));
        out_.close();
        return size_ + sizeof(sum);
    }
    bool good() const { return (bool) out_; }

  private:
    std::ofstream out_;
    checksum      sum_;
    size_t        size_ = 0;
};

// ---- reading ----

// Opens regular files only: no folder, and no pipe without a writer.
std::filesystem::path regular_file(const std::string & name) {
    const std::filesystem::path path = file_path(name);
    std::error_code             error;
    if (!std::filesystem::is_regular_file(path, error)) {
        refuse_file(error ? "cannot be read: " + error.message() : "cannot be read: it is no regular file");
    }
    return path;
}

class reader {
  public:
    explicit reader(const std::string & path) : in_(regular_file(path), std::ios::binary | std::ios::ate) {
        refuse_file_if(!in_, "cannot be read: ", std::strerror(errno));
        const std::streamoff size = in_.tellg();
        in_.seekg(0);
        refuse_file_if(
            !in_ || size < (std::streamoff) (sizeof(head) + sizeof(uint64_t)), "is no saved slot: it is too short");
        size_ = (size_t) size;
        left_ = size_ - sizeof(uint64_t);   // the checksum is not among what is read
    }

    size_t size() const { return size_; }

    // Throws before anything is allocated.
    void need(uint64_t n, uint64_t bytes) const {
        refuse_file_if(n > left_ / bytes, "is damaged: it has fewer bytes than it tells");
    }
    void read(void * data, size_t size) {
        need(size, 1);
        refuse_file_if(!in_.read((char *) data, (std::streamsize) size), "cannot be read to its end");
        sum_.add(data, size);
        left_ -= size;
    }
    template <class T> void read_all(T & values, uint64_t n) {
        need(n, sizeof(values[0]));
        values.resize((size_t) n);
        read(values.data(), (size_t) n * sizeof(values[0]));
    }
    void finish() {
        uint64_t sum = 0;
        refuse_file_if(left_ != 0 || !in_.read((char *) &sum, sizeof(sum)) || sum != sum_.value(),
            "is damaged: its checksum is another one");
    }

  private:
    std::ifstream in_;
    checksum      sum_;
    size_t        size_ = 0, left_ = 0;
};

void check(const head & h, size_t size, const slot_file_owner & owner, int32_t max_tokens) {
    refuse_file_if(std::memcmp(h.magic, MAGIC, sizeof(MAGIC)) != 0, "is no saved slot of this version");
    refuse_file_if(h.file_size != size, "is damaged: it has ", size, " of ", h.file_size, " bytes");
    refuse_file_if(h.target != owner.target, "was saved with another target");
    refuse_file_if(h.drafter != owner.drafter, "was saved with another drafter, or without one");
    refuse_file_if(h.n_tokens < 1 || h.n_tokens > max_tokens, "holds ", h.n_tokens, " tokens, must be 1..", max_tokens,
        " (start with a larger -c)");
    const bool sound = h.n_asked >= 0 && h.n_asked <= h.n_tokens && h.n_checkpoints >= 0 && h.n_checkpoints <= 1024 &&
                       h.past_begin >= 0 && h.past_begin <= h.ring_end && h.n_segments >= 0 &&
                       h.n_segments <= h.n_tokens / kv_history::STEP + 1 && h.ring_begin >= 0 &&
                       h.ring_begin <= h.ring_end && h.ring_end <= h.n_tokens && h.taps_pos >= 0 && h.taps_rows >= 0 &&
                       h.taps_pos <= h.n_tokens - h.taps_rows && h.zero == 0;
    refuse_file_if(!sound, "is damaged: its counts contradict each other");
}

void add_samples(checksum & sum, const std::string & path) {
    constexpr size_t BEGINNING = 1 << 20, SAMPLE = 1 << 12, N_SAMPLES = 64;
    std::ifstream    in(file_path(path), std::ios::binary | std::ios::ate);
    const auto       size = (uint64_t) in.tellg();
    refuse_file_if(!in, "cannot be read: ", std::strerror(errno));
    std::vector<char> bytes(BEGINNING);
    sum.add(&size, sizeof(size));
    for (size_t i = 0; i <= N_SAMPLES; ++i) {
        const uint64_t at     = i == 0 ? 0 : size / N_SAMPLES * (i - 1);
        const size_t   n_read = (size_t) std::min<uint64_t>(i == 0 ? BEGINNING : SAMPLE, size - at);
        refuse_file_if(
            !in.seekg((std::streamoff) at) || !in.read(bytes.data(), (std::streamsize) n_read), "cannot be read");
        sum.add(bytes.data(), n_read);
    }
}

}   // namespace

uint64_t model_fingerprint(const std::string & path) {
    checksum sum;
    for (const std::string & part : gguf_parts(path)) {
        std::error_code error;
        if (part == path || std::filesystem::exists(file_path(part), error)) {   // a whole model may be called so
            add_samples(sum, part);
        }
    }
    return sum.value();
}

static head head_of(const conversation & c, const slot_file_owner & owner) {
    const auto & past = c.ring.past.segments();
    head         h    = {};
    std::memcpy(h.magic, MAGIC, sizeof(MAGIC));
    h.target        = owner.target;
    h.drafter       = owner.drafter;
    h.state_size    = c.state.size();
    h.ring_size     = c.ring.data.size();
    h.n_taps        = c.taps.data.size();
    h.n_tokens      = (int32_t) c.tokens.size();
    h.n_asked       = c.n_asked;
    h.n_checkpoints = (int32_t) c.checkpoints.size();
    h.n_segments    = (int32_t) past.size();
    h.past_begin    = past.empty() ? 0 : c.ring.past.begin();
    h.segment_size  = past.empty() ? 0 : past.front()->size();
    h.ring_begin    = c.ring.begin;
    h.ring_end      = c.ring.end;
    h.taps_pos      = c.taps.pos;
    h.taps_rows     = c.taps.rows;
    h.file_size     = sizeof(h) + c.tokens.size() * sizeof(int32_t) + h.state_size + past.size() * h.segment_size +
                  h.ring_size + h.n_taps * sizeof(float) + sizeof(uint64_t);
    for (const checkpoint & p : c.checkpoints) {
        h.file_size += 2 * sizeof(uint64_t) + p.state->size();
    }
    return h;
}

size_t write_slot_file(const std::string & path, const conversation & c, const slot_file_owner & owner) {
    // Beside it, with a name as short as any.
    const auto        now  = std::chrono::steady_clock::now().time_since_epoch();
    const std::string part = file_path(path).replace_filename(std::to_string(now.count()) + ".part").u8string();
    const head        h    = head_of(c, owner);
    errno                  = 0;
    writer out(part);
    out.write(&h, sizeof(h));
    out.write(c.tokens.data(), c.tokens.size() * sizeof(int32_t));
    out.write(c.state.data(), c.state.size());
    for (const checkpoint & p : c.checkpoints) {
        const uint64_t at_and_size[2] = { (uint64_t) p.at, p.state->size() };
        out.write(at_and_size, sizeof(at_and_size));
        out.write(p.state->data(), p.state->size());
    }
    for (const kv_history::segment & segment : c.ring.past.segments()) {
        out.write(segment->data(), segment->size());
    }
    out.write(c.ring.data.data(), c.ring.data.size());
    out.write(c.taps.data.data(), c.taps.data.size() * sizeof(float));
    const size_t          size        = out.finish();
    const int             write_error = errno;
    const std::error_code error       = out.good() ? rename_file(part, path) : std::error_code();
    if (!out.good() || error) {
        const std::string why = error         ? error.message()
                                : write_error ? std::strerror(write_error)
                                              : "the disk may be full";
        remove_file(part);
        refuse_file("cannot be written: " + why);
    }
    return size;
}

conversation read_slot_file(
    const std::string & path, const slot_file_owner & owner, int32_t max_tokens, size_t & bytes) {
    reader in(path);
    head   h;
    in.read(&h, sizeof(h));
    check(h, in.size(), owner, max_tokens);

    conversation c;
    c.n_asked    = h.n_asked;
    c.ring.begin = h.ring_begin;
    c.ring.end   = h.ring_end;
    c.taps.pos   = h.taps_pos;
    c.taps.rows  = h.taps_rows;
    in.read_all(c.tokens, (uint64_t) h.n_tokens);
    in.read_all(c.state, h.state_size);
    for (int32_t i = 0; i < h.n_checkpoints; ++i) {
        uint64_t at_and_size[2];
        in.read(at_and_size, sizeof(at_and_size));
        const int32_t before = i == 0 ? 0 : c.checkpoints.back().at;
        refuse_file_if(at_and_size[0] <= (uint64_t) before || at_and_size[0] > (uint64_t) h.n_tokens,
            "is damaged: its checkpoints are not in order");
        auto state = std::make_shared<raw_bytes>();
        in.read_all(*state, at_and_size[1]);
        c.checkpoints.push_back({ (int32_t) at_and_size[0], std::move(state) });
    }
    for (int32_t i = 0; i < h.n_segments; ++i) {
        auto segment = std::make_shared<raw_bytes>();
        in.read_all(*segment, h.segment_size);
        c.ring.past.append(h.past_begin + i * kv_history::STEP, std::move(segment));
    }
    in.read_all(c.ring.data, h.ring_size);
    in.read_all(c.taps.data, h.n_taps);
    in.finish();
    bytes = in.size();
    return c;
}

}   // namespace dflash
