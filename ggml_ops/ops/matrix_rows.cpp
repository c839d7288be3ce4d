#include "matrix_rows.h"

#include "panel_layout.h"

#include <algorithm>
#include <array>

namespace {

constexpr int MOST_ROWS = 64;   // that a panel kernel is given at once (panel_buffer.cpp)

using counts = std::array<int, GGML_TYPE_COUNT>;

counts own_counts() {
    counts own;
    for (int t = 0; t < GGML_TYPE_COUNT; ++t) {
        own[t] = dflash::panel_tiles_from((ggml_type) t);
    }
    return own;
}

}  // namespace

int dflash_cpu_matrix_rows(int, ggml_type type, int rows) {
    static const counts own = own_counts();
    if (type < 0 || type >= GGML_TYPE_COUNT || own[type] == 0) {
        return 0;
    }
    if (rows >= 0) {
        dflash::panel_set_tiles_from(type, rows == 0 ? own[type] : std::min(rows, MOST_ROWS + 1));
    }
    return dflash::panel_tiles_from(type);
}
