#include "cache/pending_taps.h"

#include <algorithm>

namespace dflash {

void pending_taps::keep(int32_t id, int32_t row, int32_t n) {
    if (const tap_store * cells = store()) {
        of_[id].append(cells->pass().data() + row, n);
    } else if (source_ == tap_source::layers) {
        target_.read_taps(row, n, of_[id].append(n, row_size_));
    } else {
        target_.read_final_state(row, n, of_[id].append(n, row_size_));
    }
    if (has_sections_) {
        const auto first = target_.rows().positions().begin() + row;
        of_[id].rope.insert(of_[id].rope.end(), first, first + n);
    }
}

void pending_taps::keep(int32_t id, int32_t first_row, const std::vector<int32_t> & path) {
    const int32_t n = (int32_t) path.size();
    for (int32_t from = 0; from < n;) {   // neighbouring rows at once
        int32_t to = from + 1;
        while (to < n && path[to] == path[to - 1] + 1) {
            ++to;
        }
        keep(id, first_row + path[from], to - from);
        from = to;
    }
}

tap_rows pending_taps::on_host(int32_t id) const {
    tap_rows taps = of_[id];
    if (store()) {
        taps.data = store()->read(taps.cells);
        taps.cells.clear();
    }
    return taps;
}

void pending_taps::restore(int32_t id, const tap_rows & taps, const std::function<void()> & free_cells) {
    tap_store * cells_of = store();
    if (!cells_of) {
        of_[id] = taps;
        return;
    }
    of_[id].clear(taps.pos);
    for (int32_t from = 0; from < taps.rows;) {
        if (cells_of->n_free() == 0) {
            free_cells();
        }
        const int32_t               n     = std::min(taps.rows - from, cells_of->n_free());
        const std::vector<tap_cell> cells = cells_of->take(n);
        cells_of->write(cells, taps.data.data() + from * row_size_);
        of_[id].append(cells.data(), n);
        if (has_sections_) {
            of_[id].rope.insert(of_[id].rope.end(), taps.rope.begin() + from, taps.rope.begin() + from + n);
        }
        from += n;
    }
}

}   // namespace dflash
