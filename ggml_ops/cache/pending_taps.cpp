#include "cache/pending_taps.h"

#include <algorithm>

namespace dflash {

void pending_taps::clear(int32_t at) {
    data.clear();
    cells.clear();
    pos  = at;
    rows = 0;
}

void pending_taps::truncate(int32_t end, size_t row_size) {
    rows = std::clamp(end - pos, 0, rows);
    data.resize(std::min(data.size(), rows * row_size));
    cells.resize(std::min<size_t>(cells.size(), rows));
    if (rows == 0) {
        pos = std::min(pos, end);
    }
}

float * pending_taps::append(int32_t n, size_t row_size) {
    const size_t end = rows * row_size;
    data.resize(end + n * row_size);
    rows += n;
    return data.data() + end;
}

void pending_taps::append(const tap_cell * first, int32_t n) {
    cells.insert(cells.end(), first, first + n);
    rows += n;
}

}   // namespace dflash
