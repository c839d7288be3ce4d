// AMX kernels for packed weights: what both products share, the products, and the driver. Included by isa/amx.cpp after
// its vectors.
//
// Tiles 0 to 3 are accumulators: rows of the pass by 16 columns. Tiles 4 and 5 are activations: rows of `width` values.
// Tiles 6 and 7 are weights: each row has 4 inner positions of 16 columns.

#include "cpu/gemm/packed_gemm_values.h"

constexpr int TILE = 16;   // max. rows of activations in a tile

struct alignas(64) tile_config {
    uint8_t  palette = 1, start_row = 0, reserved[14] = {};
    uint16_t bytes[16] = {};   // per row
    uint8_t  rows[16]  = {};

    tile_config(int n_rows, int width) {
        for (int t = 0; t < 8; ++t) {
            rows[t]  = (uint8_t) (t < 6 ? n_rows : width / 4);
            bytes[t] = (uint16_t) (t == 4 || t == 5 ? width : 64);
        }
    }
};

// gcc's intrinsics declare less memory than their instructions access. The barrier makes earlier stores visible to
// them, and later loads read what they wrote.
ISA_INLINE void compiler_barrier(const void * p) { __asm__ volatile("" : : "r"(p) : "memory"); }

ISA_INLINE void store_line(uint8_t * to, __m512i v) { _mm512_store_si512((__m512i *) to, v); }

// Prefetches the data PREFETCH_AHEAD bytes after `from` into L1 or L2.
template <int CACHE> ISA_INLINE void prefetch_ahead(const void * from, size_t bytes) {
    for (size_t i = 0; i < bytes; i += 64) {
        const char * const line = (const char *) from + PREFETCH_AHEAD + i;
        CACHE == 1 ? _mm_prefetch(line, _MM_HINT_T0) : _mm_prefetch(line, _MM_HINT_T1);
    }
}

// Up to 64 rows in groups of equal size, one tile each. The last group is moved back until it is full (rows that are
// computed twice get the same results). A group's rows are scaled in fours, and the last four are moved back in the
// same way.
struct row_groups {
    int count, rows, last_four, n_rows;   // groups; rows per group; first of a group's last four rows

    explicit row_groups(int n_rows) :
        count((n_rows + TILE - 1) / TILE), rows((n_rows + count - 1) / count), last_four(std::max(0, rows - 4)),
        n_rows(n_rows) {}
    int first(int g) const { return std::min(g * rows, n_rows - rows); }
};

// tile: 0 to 3. The intrinsic needs a constant.
ISA_INLINE void store_tile(int tile, int32_t (*sums)[PANEL]) {
    switch (tile) {
        case 0: _tile_stored(0, sums, 64); break;
        case 1: _tile_stored(1, sums, 64); break;
        case 2: _tile_stored(2, sums, 64); break;
        case 3: _tile_stored(3, sums, 64); break;
    }
}

#include "cpu/gemm/packed_gemm_amx_256.h"
#include "cpu/gemm/packed_gemm_amx_32.h"

template <class T> using product = std::conditional_t<T::panel::SIZE == 32, product_of_32<T>, product_of_256<T>>;

// T: a record of weight_types.h
template <class T> ISA_FUNCTION void packed_gemm(const packed_gemm_call & call) {
    constexpr packed_gemm_kernel compute[] = { product<T>::template compute<1>, product<T>::template compute<2>,
        product<T>::template compute<3>, product<T>::template compute<4> };   // indexed by fours of rows in a tile

    // ggml's own AMX code configures a thread's tiles only once, so its configuration is restored
    alignas(64) char saved[64];
    _tile_storeconfig(saved);
    compiler_barrier(saved);
    packed_gemm_call part = call;
    for (int r = 0; r < call.n_rows && call.n_panels > 0; r += MAX_GEMM_ROWS) {
        part.rows   = (const char *) call.rows + r * call.row_stride;
        part.n_rows = std::min(MAX_GEMM_ROWS, call.n_rows - r);
        part.out    = call.out + r * call.out_stride;
        const tile_config config(row_groups(part.n_rows).rows, product<T>::WIDTH);
        compiler_barrier(&config);
        _tile_loadconfig(&config);
        compute[(config.rows[0] - 1) / 4](part);
    }
    _tile_release();
    if (saved[0]) {
        _tile_loadconfig(saved);
    }
}

inline packed_gemm_kernel find_packed_gemm(ggml_type type) {
    return with_weight_type(
        type, (packed_gemm_kernel) nullptr, [](auto t) -> packed_gemm_kernel { return packed_gemm<decltype(t)>; });
}
