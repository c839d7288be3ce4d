// What all drafters hold of each sequence. Without a drafter nothing is held, and every call does nothing.

#pragma once

#include "cache/draft_memory.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace dflash {

class draft_memories {
  public:
    // `target` must outlive this.
    draft_memories(target & target, std::vector<std::unique_ptr<drafter>> drafters);

    int32_t              size() const { return (int32_t) all_.size(); }
    bool                 empty() const { return all_.empty(); }
    draft_memory &       operator[](int32_t i) { return *all_[i]; }
    const draft_memory & operator[](int32_t i) const { return *all_[i]; }
    drafter_list         drafters() const;

    // Keeps the taps of rows [row, row + n) of the target's last pass, or of those on a path from `first_row`.
    void keep_taps(int32_t id, int32_t row, int32_t n);
    void keep_taps(int32_t id, int32_t first_row, const std::vector<int32_t> & path);
    // Before each pass of the target, after target::end_pass() (draft_memory::free_tap_cells).
    void free_tap_cells();
    // Tokens of a text, from the first-th on, for what the drafters may propose.
    void count_text(const std::vector<int32_t> & tokens, size_t first = 0);

    // ---- with the target's memory ----

    void forget(int32_t id);
    void cut(int32_t id, int32_t n_past);
    // Lets `to` hold what `from` holds of the first n_past tokens.
    void share(int32_t from, int32_t to, int32_t n_past);
    void set_aside(int32_t id);
    void bring_back(int32_t id);
    // To the host and back.
    void   copy_to(conversation & c, int32_t id) const;
    size_t copy_bytes(int32_t id) const;   // of such a copy
    // Of another number of drafters nothing comes back.
    void restore(int32_t id, const conversation & c);
    // Why what a conversation from outside has for these drafters is wrong, empty if it can be theirs, or is others'
    // and so does not come back.
    std::string refusal(const conversation & c) const;

  private:
    std::vector<std::unique_ptr<draft_memory>> all_;
};

}   // namespace dflash
