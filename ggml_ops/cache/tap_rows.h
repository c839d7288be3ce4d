// Taps of consecutive positions of one sequence. No llama.cpp types.

#pragma once

#include "base/rope_position.h"
#include "llama/tap_cell.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace dflash {

// Positions [pos, pos + rows): rows on the host, or cells of a tap store. `row_size`: floats of a row.
struct tap_rows {
    std::vector<float>         data;    // [rows, row_size] on the host
    std::vector<tap_cell>      cells;   // [rows] elsewhere
    std::vector<rope_position> rope;    // [rows] for a drafter that asks where they stand
    int32_t                    pos  = 0;
    int32_t                    rows = 0;

    // Holds nothing, goes on at position `at`.
    void clear(int32_t at) {
        data.clear();
        cells.clear();
        rope.clear();
        pos  = at;
        rows = 0;
    }

    // Keeps positions < end.
    void truncate(int32_t end, size_t row_size) {
        rows = std::clamp(end - pos, 0, rows);
        data.resize(std::min(data.size(), rows * row_size));
        cells.resize(std::min<size_t>(cells.size(), rows));
        rope.resize(std::min<size_t>(rope.size(), rows));
        if (rows == 0) {
            pos = std::min(pos, end);
        }
    }

    // Room for n more rows.
    float * append(int32_t n, size_t row_size) {
        const size_t end = rows * row_size;
        data.resize(end + n * row_size);
        rows += n;
        return data.data() + end;
    }

    void append(const tap_cell * first, int32_t n) {
        cells.insert(cells.end(), first, first + n);
        rows += n;
    }
};

}   // namespace dflash
