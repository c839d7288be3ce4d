#include "cpu/gemm/packed_gemm_choice.h"

#include "cpu/gemm/packed_weights.h"
#include "cpu/isa/kernels.h"

#include <atomic>
#include <cstdlib>
#include <cstring>

namespace dflash {

namespace {

// From how many rows on tiles are faster: as measured (docs/kernels.md).
int default_tile_rows(ggml_type type) {
    return type == GGML_TYPE_Q5_K ? 2 : type == GGML_TYPE_Q4_K ? 4 : type == GGML_TYPE_Q8_0 ? 8 : 9;
}

template <ggml_type T> struct choice {
    packed_gemm_kernel vectors = nullptr, tiles = nullptr;
    std::atomic<int>   tile_rows{ default_tile_rows(T) };

    choice() {
        const char * only = std::getenv("DFLASH_PANELS");
        for (const packed_gemm_variant & variant : packed_gemm_variants()) {
            packed_gemm_kernel & kernel = std::strcmp(variant.name, "amx") == 0 ? tiles : vectors;
            if (!kernel && (!only || std::strcmp(only, "1") == 0 || std::strcmp(only, variant.name) == 0)) {
                kernel = variant.find(T);
            }
        }
    }
    static choice & get() {
        static choice c;
        return c;
    }
    static void vectors_or_tiles(const void * panels, int64_t n_blocks, int64_t begin, int64_t end, const void * rows,
        size_t row_stride, int n_rows, float * out, size_t out_stride) {
        const choice & c = get();
        (!c.vectors || n_rows >= c.tile_rows.load(std::memory_order_relaxed) ? c.tiles : c.vectors)(
            panels, n_blocks, begin, end, rows, row_stride, n_rows, out, out_stride);
    }
    packed_gemm_kernel kernel() const { return vectors && tiles ? vectors_or_tiles : vectors ? vectors : tiles; }
};

// Calls f with the choice of a type.
template <class F> auto with_choice(ggml_type type, F && f) {
    switch (type) {
        case GGML_TYPE_Q4_0: return f(choice<GGML_TYPE_Q4_0>::get());
        case GGML_TYPE_IQ4_NL: return f(choice<GGML_TYPE_IQ4_NL>::get());
        case GGML_TYPE_MXFP4: return f(choice<GGML_TYPE_MXFP4>::get());
        case GGML_TYPE_Q8_0: return f(choice<GGML_TYPE_Q8_0>::get());
        case GGML_TYPE_Q4_K: return f(choice<GGML_TYPE_Q4_K>::get());
        case GGML_TYPE_Q5_K: return f(choice<GGML_TYPE_Q5_K>::get());
        default: return f(choice<GGML_TYPE_Q6_K>::get());
    }
}

}   // namespace

packed_gemm_kernel choose_packed_gemm(ggml_type type) {
    return has_panel_layout(type) ? with_choice(type, [](auto & c) { return c.kernel(); }) : nullptr;
}

int packed_gemm_tile_rows(ggml_type type) {
    return has_panel_layout(type)
               ? with_choice(type, [](auto & c) { return c.vectors && c.tiles ? c.tile_rows.load() : 0; })
               : 0;
}

void set_packed_gemm_tile_rows(ggml_type type, int n_rows) {
    if (has_panel_layout(type)) {
        with_choice(type, [n_rows](auto & c) { c.tile_rows = n_rows; });
    }
}

}   // namespace dflash
