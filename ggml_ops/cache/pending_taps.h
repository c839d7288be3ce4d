// Taps that the drafter has not read yet, of one sequence: draft_memory has one for each, adds the rows of each pass
// (draft_memory::keep) and hands them to the drafter (draft_memory::run). No llama.cpp types.

#pragma once

#include "llama/tap_cell.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dflash {

// Positions [pos, pos + rows): rows on the host, or cells of a tap store. `row_size`: floats of a row.
struct pending_taps {
    std::vector<float>    data;    // [rows, row_size] on the host
    std::vector<tap_cell> cells;   // [rows] elsewhere
    int32_t               pos  = 0;
    int32_t               rows = 0;

    void    clear(int32_t at);                           // hold nothing, go on at position `at`
    void    truncate(int32_t end, size_t row_size);      // keep positions < end
    float * append(int32_t n, size_t row_size);          // room for n more rows
    void    append(const tap_cell * first, int32_t n);   // n more cells
};

}   // namespace dflash
