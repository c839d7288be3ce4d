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

constexpr int32_t MAX_DRAFTS      = 8;
constexpr char    CONTRADICTION[] = "is damaged: its counts contradict each other";
constexpr char    MAGIC[8]        = { 'D', 'F', 'S', 'L', 'O', 'T', '0', '6' };

struct head {
    char     magic[8];
    uint64_t file_size;
    uint64_t target, drafter, projector;   // projector: 0 without media
    uint64_t state_size;                   // bytes
    int32_t  n_tokens, n_asked, n_checkpoints, n_drafts, n_media, rope_factors;
};

// A medium.
struct media_head {
    uint8_t hash[32];
    int32_t token, part, order, n_rows, n_pos, advances;
};

// Before what a drafter holds.
struct draft_head {
    uint64_t context_size, n_taps;   // bytes, floats
    uint64_t segment_size;           // of its history
    int32_t  past_begin, n_segments;
    int32_t  begin, end;   // of its context
    int32_t  taps_pos, taps_rows;
    int32_t  n_positions, unused;   // of taps
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
    refuse_file_if(h.rope_factors != owner.rope_factors,
        "was saved with a context that takes other rotation factors (LongRoPE): start with the same -c and -np");
    refuse_file_if(h.n_media > 0 && h.projector != owner.projector,
        "holds media, which were read by another projector, or there is none here");
    refuse_file_if(h.n_tokens < 1 || h.n_tokens > max_tokens, "holds ", h.n_tokens, " tokens, must be 1..", max_tokens,
        " (start with a larger -c)");
    const bool sound = h.n_asked >= 0 && h.n_asked <= h.n_tokens && h.n_checkpoints >= 0 && h.n_checkpoints <= 1024 &&
                       h.n_drafts >= 0 && h.n_drafts <= MAX_DRAFTS && h.n_media >= 0 && h.n_media <= h.n_tokens;
    refuse_file_if(!sound, CONTRADICTION);
}

void check(const draft_head & h, int32_t n_tokens) {
    const bool sound = h.past_begin >= 0 && h.past_begin <= h.end && h.n_segments >= 0 &&
                       h.n_segments <= n_tokens / kv_history::STEP + 1 && h.begin >= 0 && h.begin <= h.end &&
                       h.end <= n_tokens && h.taps_pos >= 0 && h.taps_rows >= 0 &&
                       h.taps_pos <= n_tokens - h.taps_rows && (h.n_positions == 0 || h.n_positions == h.taps_rows);
    refuse_file_if(!sound, CONTRADICTION);
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

static draft_head head_of(const draft_copy & d) {
    const auto & past = d.context.past.segments();
    draft_head   h    = {};
    h.context_size    = d.context.data.size();
    h.n_taps          = d.taps.data.size();
    h.n_segments      = (int32_t) past.size();
    h.past_begin      = past.empty() ? 0 : d.context.past.begin();
    h.segment_size    = past.empty() ? 0 : past.front()->size();
    h.begin           = d.context.begin;
    h.end             = d.context.end;
    h.taps_pos        = d.taps.pos;
    h.taps_rows       = d.taps.rows;
    h.n_positions     = (int32_t) d.taps.rope.size();
    return h;
}

static media_head head_of(const slot_medium & m) {
    media_head h = {};
    std::copy(m.key.hash.begin(), m.key.hash.end(), h.hash);
    h.token    = m.token;
    h.part     = m.key.part;
    h.order    = m.key.order;
    h.n_rows   = m.key.size.n_rows;
    h.n_pos    = m.key.size.n_pos;
    h.advances = m.key.size.advances;
    return h;
}

static slot_medium medium_of(const media_head & h) {
    constexpr int32_t MAX = 1 << 24;   // rows of a medium, and media: no sum of them may overflow
    refuse_file_if(h.token >= -1 || h.token < -MAX || h.n_rows < 1 || h.n_rows > MAX, CONTRADICTION);
    refuse_file_if(h.n_pos < 1 || h.n_pos > h.n_rows, CONTRADICTION);
    slot_medium m;
    m.token = h.token;
    std::copy(std::begin(h.hash), std::end(h.hash), m.key.hash.begin());
    m.key.part          = h.part;
    m.key.order         = h.order;
    m.key.size.n_rows   = h.n_rows;
    m.key.size.n_pos    = h.n_pos;
    m.key.size.advances = h.advances != 0;
    return m;
}

static head head_of(const conversation & c, size_t n_media, const slot_file_owner & owner) {
    head h = {};
    std::memcpy(h.magic, MAGIC, sizeof(MAGIC));
    h.target        = owner.target;
    h.drafter       = owner.drafter;
    h.projector     = n_media > 0 ? owner.projector : 0;
    h.state_size    = c.state.size();
    h.n_tokens      = (int32_t) c.tokens.size();
    h.n_asked       = c.n_asked;
    h.n_checkpoints = (int32_t) c.checkpoints.size();
    h.n_drafts      = (int32_t) c.drafts.size();
    h.n_media       = (int32_t) n_media;
    h.rope_factors  = owner.rope_factors;
    h.file_size     = sizeof(h) + c.bytes() + c.checkpoints.size() * 2 * sizeof(uint64_t) +
                  c.drafts.size() * sizeof(draft_head) + n_media * sizeof(media_head) + sizeof(uint64_t);
    return h;
}

static void write_draft(writer & out, const draft_copy & d) {
    const draft_head h = head_of(d);
    out.write(&h, sizeof(h));
    for (const kv_history::segment & segment : d.context.past.segments()) {
        out.write(segment->data(), segment->size());
    }
    out.write(d.context.data.data(), d.context.data.size());
    out.write(d.taps.data.data(), d.taps.data.size() * sizeof(float));
    out.write(d.taps.rope.data(), d.taps.rope.size() * sizeof(rope_position));
}

static draft_copy read_draft(reader & in, int32_t n_tokens) {
    draft_head h;
    in.read(&h, sizeof(h));
    check(h, n_tokens);
    draft_copy d;
    d.context.begin = h.begin;
    d.context.end   = h.end;
    d.taps.pos      = h.taps_pos;
    d.taps.rows     = h.taps_rows;
    for (int32_t i = 0; i < h.n_segments; ++i) {
        auto segment = std::make_shared<raw_bytes>();
        in.read_all(*segment, h.segment_size);
        d.context.past.append(h.past_begin + i * kv_history::STEP, std::move(segment));
    }
    in.read_all(d.context.data, h.context_size);
    in.read_all(d.taps.data, h.n_taps);
    in.read_all(d.taps.rope, h.n_positions);
    return d;
}

size_t write_slot_file(const std::string & path, const conversation & c, const std::vector<slot_medium> & media,
    const slot_file_owner & owner) {
    // Beside it, with a name as short as any.
    const auto        now  = std::chrono::steady_clock::now().time_since_epoch();
    const std::string part = file_path(path).replace_filename(std::to_string(now.count()) + ".part").u8string();
    const head        h    = head_of(c, media.size(), owner);
    errno                  = 0;
    writer out(part);
    out.write(&h, sizeof(h));
    out.write(c.tokens.data(), c.tokens.size() * sizeof(int32_t));
    for (const slot_medium & m : media) {
        const media_head of = head_of(m);
        out.write(&of, sizeof(of));
    }
    out.write(c.state.data(), c.state.size());
    for (const checkpoint & p : c.checkpoints) {
        const uint64_t at_and_size[2] = { (uint64_t) p.at, p.state->size() };
        out.write(at_and_size, sizeof(at_and_size));
        out.write(p.state->data(), p.state->size());
    }
    for (const draft_copy & d : c.drafts) {
        write_draft(out, d);
    }
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

slot_file read_slot_file(const std::string & path, const slot_file_owner & owner, int32_t max_tokens) {
    reader in(path);
    head   h;
    in.read(&h, sizeof(h));
    check(h, in.size(), owner, max_tokens);

    slot_file      file;
    conversation & c = file.held;
    c.n_asked        = h.n_asked;
    in.read_all(c.tokens, (uint64_t) h.n_tokens);
    for (int32_t i = 0; i < h.n_media; ++i) {
        media_head m;
        in.read(&m, sizeof(m));
        file.media.push_back(medium_of(m));
    }
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
    for (int32_t i = 0; i < h.n_drafts; ++i) {
        c.drafts.push_back(read_draft(in, h.n_tokens));
    }
    in.finish();
    file.bytes = in.size();
    return file;
}

}   // namespace dflash
