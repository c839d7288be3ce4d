// Conversations that no slot holds, kept on the host as long as they fit: llama-server's prompt cache. No llama.cpp
// types.

#pragma once

#include "cache/conversation.h"

#include <cstddef>
#include <cstdint>
#include <list>
#include <vector>

namespace dflash {

// Rows that n tokens from elsewhere save, less what it costs to copy the n_copied ones that they begin: a conversation
// is copied whole, and meanwhile no slot goes on, so that every sixteenth must save one.
inline int32_t worth(int32_t n, int32_t n_copied) { return n - n_copied / 16; }

// Tokens that a text and a prompt begin with. The prompt's last one does not count: it is always read, for its logits.
int32_t common_tokens(const std::vector<int32_t> & text, const std::vector<int32_t> & prompt);

class host_cache {
  public:
    static constexpr size_t NO_LIMIT = SIZE_MAX;

    // 0 bytes: nothing is ever kept.
    explicit host_cache(size_t limit) : limit_(limit) {}

    bool   enabled() const { return limit_ > 0; }
    size_t limit() const { return limit_; }
    size_t bytes() const { return bytes_; }
    size_t size() const { return entries_.size(); }

    // Whether one of them can give all of these tokens.
    bool holds(const std::vector<int32_t> & tokens) const;
    // Forgets the oldest until `bytes` more fit. False: they never do.
    bool make_room(size_t bytes);
    // Keeps it as the newest, in place of entries whose tokens it covers, and makes room for it. False: it never fits;
    // it is dropped, and nothing else is.
    bool add(conversation && c);

    // The one whose part of the prompt's beginning is worth most, of equals the newest. Valid until the next add() or
    // take().
    struct match {
        const conversation * entry  = nullptr;   // null: none gives any
        int32_t              n_kept = 0, worth = 0;
    };
    match find(const std::vector<int32_t> & prompt) const;
    // Takes an entry out, or forgets it.
    conversation take(const conversation * entry);

    // After memory ran out: from now on keeps at most what it has, as llama-server does.
    void shrink();

  private:
    using entries = std::list<conversation>;   // oldest first: addresses stay

    entries::iterator erase(entries::iterator it);

    size_t  limit_;
    size_t  bytes_ = 0;
    entries entries_;
};

}   // namespace dflash
