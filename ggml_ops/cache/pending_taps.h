// Taps that a drafter has not read yet, of all sequences: each pass of the target adds rows, each pass of the drafter
// takes them (draft_memory::run). They are rows on the host, or cells of the target's tap store.

#pragma once

#include "cache/tap_rows.h"
#include "draft/drafter.h"
#include "target/target.h"

#include <cstdint>
#include <functional>
#include <vector>

namespace dflash {

class pending_taps {
  public:
    // `target` must outlive this.
    pending_taps(const target & target, const drafter & drafter) :
        target_(target), source_(drafter.taps()), row_size_(drafter.tap_size()), has_sections_(drafter.has_sections()),
        of_(target.params().n_slots) {}

    // Where taps lie until a drafter reads them; null: on the host.
    tap_store *      store() const { return source_ == tap_source::layers ? target_.taps() : nullptr; }
    int32_t          n_sequences() const { return (int32_t) of_.size(); }
    const tap_rows & of(int32_t id) const { return of_[id]; }
    // Keeps the taps of rows [row, row + n) of the target's last pass, or of those on a path from `first_row`.
    void keep(int32_t id, int32_t row, int32_t n);
    void keep(int32_t id, int32_t first_row, const std::vector<int32_t> & path);

    void clear(int32_t id, int32_t pos) { of_[id].clear(pos); }   // the next ones are those of position `pos`
    void cut(int32_t id, int32_t n_past) { of_[id].truncate(n_past, row_size_); }
    void copy(int32_t from, int32_t to) { of_[to] = of_[from]; }
    // To the host and back; free_cells() is called where the store has none left.
    tap_rows on_host(int32_t id) const;
    void     restore(int32_t id, const tap_rows & taps, const std::function<void()> & free_cells);

  private:
    const target &        target_;
    const tap_source      source_;
    const size_t          row_size_;   // floats
    const bool            has_sections_;
    std::vector<tap_rows> of_;   // [sequences]
};

}   // namespace dflash
