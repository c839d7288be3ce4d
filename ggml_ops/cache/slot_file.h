// A conversation as a file: what a slot held, with what it was made for. Pure standard library: the parts that
// llama.cpp and the drafter wrote are bytes here, checked by those who read them (saved_slots.cpp).
//
// Layout, in the machine's byte order:
//   magic, size of the whole file, fingerprints of target and drafter, counts and sizes (slot_file.cpp, `head`)
//   tokens | media, each {token, key} | state | checkpoints, each {at, size, bytes} | the drafter's history | its ring
//   | taps checksum of everything before it, against damage, not against attacks

#pragma once

#include "cache/conversation.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace dflash {

// The models that a state belongs to: the same files, in any place.
struct slot_file_owner {
    uint64_t target = 0, drafter = 0, projector = 0;   // fingerprints, 0: none
    int32_t  rope_factors = 0;                         // those of K in its state (access_rope_factors)
};

// A medium of a conversation, by the token of its rows.
struct slot_medium {
    int32_t    token = -1;
    medium_key key;
};

// Fingerprint of a model's file, or of all parts of a split one: sizes, beginnings and samples of the rest. Throws
// std::runtime_error.
uint64_t model_fingerprint(const std::string & path);

// Writes the file, whole or not at all: an old one stays until then. Returns its bytes. Throws
// std::runtime_error with the system's reason.
size_t write_slot_file(const std::string & path, const conversation & c, const std::vector<slot_medium> & media,
    const slot_file_owner & owner);

// Reads a file of at most max_tokens tokens. Throws std::runtime_error with one sentence: it cannot be read, is not
// one, is damaged, or belongs to another pair. Every length in it is first compared with the file's own.
struct slot_file {
    conversation             held;
    std::vector<slot_medium> media;   // of its tokens
    size_t                   bytes = 0;
};
slot_file read_slot_file(const std::string & path, const slot_file_owner & owner, int32_t max_tokens);

}   // namespace dflash
