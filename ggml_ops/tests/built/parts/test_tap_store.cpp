// A device's cells for taps: each row of a pass gets its own, and unneeded rows are discarded.

#include "llama/tap_store.h"

#include "check.h"

#include <cstdlib>
#include <new>
#include <set>
#include <stdexcept>
#include <vector>

using namespace dflash;

static constexpr int32_t N_LAYERS = 2, N_EMBD = 4, N_ROWS = 5;

// How many more blocks can be allocated; negative: any number.
static int32_t n_blocks_left = -1;

// All forms that could meet in one block: the sanitizer wants it freed as it was allocated.
void * operator new(size_t size, const std::nothrow_t &) noexcept {
    if (n_blocks_left == 0) {
        return nullptr;
    }
    if (n_blocks_left > 0) {
        --n_blocks_left;
    }
    return std::malloc(size > 0 ? size : 1);
}

void * operator new(size_t size) {
    void * p = operator new(size, std::nothrow);
    return p ? p : throw std::bad_alloc();
}

void operator delete(void * p) noexcept { std::free(p); }
void operator delete(void * p, size_t) noexcept { std::free(p); }

// Whether cells can be taken while so many blocks are left.
static bool takes(tap_store & store, int32_t n_cells, int32_t n_blocks) {
    n_blocks_left = n_blocks;
    bool taken    = true;
    try {
        store.take(n_cells);
    } catch (const std::bad_alloc &) {
        taken = false;
    }
    n_blocks_left = -1;
    return taken;
}

// Each cell is free once, wherever memory ran out.
static void without_memory(tap_store & store) {
    int32_t n_blocks = 0;
    for (; !takes(store, N_ROWS, n_blocks); ++n_blocks) {
        CHECK(store.n_free() == N_ROWS);
    }
    CHECK(n_blocks >= N_ROWS);
    std::set<int32_t> numbers;
    for (const tap_cell & cell : store.take(N_ROWS)) {
        numbers.insert(*cell);
    }
    CHECK(numbers.size() == N_ROWS && store.n_free() == N_ROWS);
}

int main() {
    ggml_backend_dev_t host = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    tap_store          store(host, { 3, 5 }, N_EMBD, N_ROWS);
    CHECK(store.n_free() == N_ROWS);

    std::vector<tap_cell> cells = store.take(store.n_free());
    std::set<int32_t>     numbers;
    for (const tap_cell & cell : cells) {
        numbers.insert(*cell);
    }
    CHECK(numbers.size() == N_ROWS);
    CHECK(numbers.count(tap_store::ZEROS) == 0 && numbers.count(tap_store::WASTE) == 0);
    CHECK(*numbers.rbegin() < store.rows()->ne[1]);
    bool thrown = false;
    try {
        store.take(1);
    } catch (const std::runtime_error &) {
        thrown = true;
    }
    CHECK(thrown);

    // what is written is read back, cell by cell
    std::vector<float> rows;
    for (int32_t i = 0; i < N_ROWS * N_LAYERS * N_EMBD; ++i) {
        rows.push_back((float) i);
    }
    store.write(cells, rows.data());
    CHECK(store.read(cells) == rows);
    CHECK(store.read({ cells[3] }) == std::vector<float>(rows.begin() + 3 * 8, rows.begin() + 4 * 8));

    // every row of a pass has its cell, including the last one; other rows have none
    store.set_pass(cells);
    for (int32_t row = 0; row < N_ROWS; ++row) {
        CHECK(store.pass_cell(row) == *cells[row]);
    }
    CHECK(store.pass_cell(-1) == tap_store::WASTE && store.pass_cell(N_ROWS) == tap_store::WASTE);

    // a cell is free once neither the pass nor a slot refers to it
    cells.clear();
    CHECK(store.n_free() == 0);
    std::vector<tap_cell> kept = { store.pass()[1] };
    store.set_pass({});
    CHECK(store.n_free() == N_ROWS - 1);
    kept.clear();
    CHECK(store.n_free() == N_ROWS);
    without_memory(store);
    return TEST_RESULT;
}
