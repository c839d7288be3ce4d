// Saved slots: what is written is read back, and a file with any other content is rejected with a sentence.

#include "cache/slot_file.h"

#include "check.h"

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

using namespace dflash;

namespace fs = std::filesystem;

static const slot_file_owner OWNER = { 11, 22 };

static conversation talk() {
    conversation c;
    c.tokens  = { 5, 6, 7, 8, 9 };
    c.n_asked = 3;
    for (int i = 0; i < 40; ++i) {
        c.state.push_back((uint8_t) i);
    }
    for (const int32_t at : { 2, 4 }) {
        const auto state = std::make_shared<raw_bytes>(10 * at);
        std::memset(state->data(), at, state->size());
        c.checkpoints.push_back({ at, state });
    }
    c.drafts.resize(2);   // the second is empty
    draft_copy & d  = c.drafts[0];
    d.context.begin = 1;
    d.context.end   = 3;
    d.context.data.resize(16);
    std::memset(d.context.data.data(), 3, 16);
    const auto segment = std::make_shared<raw_bytes>(24);
    std::memset(segment->data(), 7, segment->size());
    d.context.past.append(0, segment);
    d.taps.pos  = 3;
    d.taps.rows = 2;
    d.taps.data = { 0.5f, 1, 2, 3 };
    d.taps.rope = { { 3, 3, 3 }, { 3, 4, 5 } };
    return c;
}

static std::string read_all(const std::string & path) {
    std::ifstream in(path, std::ios::binary);
    return { std::istreambuf_iterator<char>(in), {} };
}

static void write_all(const std::string & path, const std::string & bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc).write(bytes.data(), (std::streamsize) bytes.size());
}

// The error, empty if the file was accepted.
static std::string refusal(const std::string & path, const slot_file_owner & owner = OWNER, int32_t max_tokens = 5) {
    try {
        read_slot_file(path, owner, max_tokens);
    } catch (const std::runtime_error & e) {
        return e.what();
    }
    return {};
}

static bool refuses(const std::string & text, const char * why) { return text.find(why) != std::string::npos; }

static void what_is_written_comes_back(const std::string & path) {
    const conversation   c       = talk();
    const size_t         written = write_slot_file(path, c, {}, OWNER);
    const slot_file      file    = read_slot_file(path, OWNER, 5);
    const conversation & back    = file.held;
    CHECK(written == file.bytes && file.bytes == fs::file_size(path) && file.media.empty());
    CHECK(
        back.tokens == c.tokens && back.n_asked == c.n_asked && back.drafts.size() == 2 && back.drafts[1].bytes() == 0);
    const draft_copy & d = back.drafts[0];
    CHECK(back.state == c.state && d.context.data == c.drafts[0].context.data && d.taps.data == c.drafts[0].taps.data);
    CHECK(d.context.begin == 1 && d.context.end == 3 && d.taps.pos == 3 && d.taps.rows == 2);
    CHECK(d.taps.rope == c.drafts[0].taps.rope);
    CHECK(d.context.past.begin() == 0 && d.context.past.end() == 64);
    CHECK(d.context.past.holding(3) == c.drafts[0].context.past.holding(3));
    CHECK(back.checkpoints.size() == 2 && back.checkpoints[1].at == 4);
    CHECK(*back.checkpoints[1].state == *c.checkpoints[1].state);
}

// Two pictures, the second twice: rows without a position of their own, and with one.
static std::vector<slot_medium> pictures() {
    slot_medium first, second;
    first.token        = -2;
    first.key.hash[31] = 7;
    first.key.part     = 1;
    first.key.size     = { 2, 1, false };
    second.token       = -5;
    second.key.hash[0] = 9;
    second.key.order   = 3;
    second.key.size    = { 1, 1, true };
    return { first, second };
}

static bool equal(const medium_key & a, const medium_key & b) { return !(a < b) && !(b < a); }

static void media_come_back(const std::string & path) {
    conversation c = talk();
    c.tokens       = { -2, -2, -5, 1, -5 };
    write_slot_file(path, c, pictures(), { 11, 22, 33 });
    const slot_file file = read_slot_file(path, { 11, 22, 33 }, 5);
    CHECK(file.held.tokens == c.tokens && file.media.size() == 2);
    for (size_t i = 0; i < 2; ++i) {
        CHECK(file.media[i].token == pictures()[i].token && equal(file.media[i].key, pictures()[i].key));
    }
    CHECK(refuses(refusal(path, { 11, 22, 34 }), "by another projector"));
    write_slot_file(path, talk(), {}, { 11, 22, 33 });   // text is the same with any
    CHECK(refusal(path, { 11, 22, 34 }).empty());
}

static void foreign_files_are_told_apart(const std::string & path) {
    write_slot_file(path, talk(), {}, OWNER);
    CHECK(refuses(refusal(path, { 12, 22 }), "another target"));
    CHECK(refuses(refusal(path, { 11, 0 }), "another drafter"));
    CHECK(refuses(refusal(path, OWNER, 4), "larger -c"));
    CHECK(refuses(refusal(path + ".none"), "cannot be read"));
    CHECK(refuses(refusal(fs::path(path).parent_path().string()), "no regular file"));
}

// No prefix of a file is accepted, nor one with any byte changed.
static void damage_is_found(const std::string & path) {
    write_slot_file(path, talk(), {}, OWNER);
    const std::string whole = read_all(path);
    for (size_t n = 0; n < whole.size(); ++n) {
        write_all(path, whole.substr(0, n));
        CHECK(!refusal(path).empty());
        std::string flipped = whole;
        flipped[n]          = (char) (flipped[n] ^ 0x81);
        write_all(path, flipped);
        CHECK(!refusal(path).empty());
    }
    write_all(path, whole + whole);
    CHECK(refuses(refusal(path), "is damaged"));
    write_all(path, whole);
    CHECK(refusal(path).empty());
}

// A length that exceeds the file allocates nothing.
static void lengths_are_compared_before_they_are_used(const std::string & path) {
    constexpr size_t STATE_SIZE   = 40;                                 // in the head
    constexpr size_t CONTEXT_SIZE = 0, N_TAPS = 8, SEGMENT_SIZE = 16;   // in that of a drafter's part
    // two of those, their parts, the checksum
    constexpr size_t BEHIND = 56 + 24 + 16 + 4 * sizeof(float) + 2 * sizeof(rope_position) + 56 + 8;
    write_slot_file(path, talk(), {}, OWNER);
    const std::string whole = read_all(path);
    const size_t      draft = whole.size() - BEHIND;
    for (const size_t field : { STATE_SIZE, draft + CONTEXT_SIZE, draft + N_TAPS, draft + SEGMENT_SIZE }) {
        for (const uint64_t size : { UINT64_MAX, UINT64_MAX / 4, (uint64_t) 1 << 40 }) {
            std::string bad = whole;
            std::memcpy(&bad[field], &size, sizeof(size));
            write_all(path, bad);
            CHECK(refuses(refusal(path), "fewer bytes than it tells"));
        }
    }
}

// The old file stays until the new one is complete, and no other files are left.
static void a_file_is_replaced_whole(const std::string & path) {
    write_slot_file(path, talk(), {}, OWNER);
    conversation c = talk();
    c.tokens       = { 1, 2, 3, 4, 5 };
    write_slot_file(path, c, {}, OWNER);
    CHECK(read_slot_file(path, OWNER, 5).held.tokens == c.tokens);
    std::string why;
    try {
        write_slot_file(path + "/no/folder", c, {}, OWNER);
    } catch (const std::runtime_error & e) {
        why = e.what();
    }
    CHECK(refuses(why, "cannot be written"));
    CHECK(std::distance(fs::directory_iterator(fs::path(path).parent_path()), {}) == 1);
}

static void fingerprints(const std::string & path) {
    std::string bytes(3 << 20, 'x');
    write_all(path, bytes);
    const uint64_t first = model_fingerprint(path);
    CHECK(first == model_fingerprint(path));
    bytes[100] = 'y';
    write_all(path, bytes);
    CHECK(first != model_fingerprint(path));
    write_all(path, "");
    CHECK(model_fingerprint(path) != first);

    const std::string part = path + "-00001-of-00002.gguf", other = path + "-00002-of-00002.gguf";
    write_all(part, bytes);
    const uint64_t alone = model_fingerprint(part);   // a whole model with such a name
    write_all(other, "x");
    const uint64_t both = model_fingerprint(part);
    write_all(other, "y");
    CHECK(both != alone && model_fingerprint(part) != both);
}

int main() {
    const fs::path folder = fs::temp_directory_path() / ("dflash-slot-file-" + std::to_string((size_t) &OWNER));
    fs::create_directories(folder);
    const std::string path = (folder / "slot.bin").string();
    what_is_written_comes_back(path);
    media_come_back(path);
    foreign_files_are_told_apart(path);
    damage_is_found(path);
    lengths_are_compared_before_they_are_used(path);
    a_file_is_replaced_whole(path);
    fingerprints(path);
    fs::remove_all(folder);
    return TEST_RESULT;
}
