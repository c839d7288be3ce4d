#include "cpu/gemm/packed_gemm_choice.h"

#include "cpu/gemm/weight_types.h"
#include "cpu/isa/kernels.h"
#include "cpu/switches.h"

#include <atomic>

namespace dflash {

namespace {

template <class T> struct choice {
    packed_gemm_kernel vectors = nullptr, tiles = nullptr;
    std::atomic<int>   tile_rows{ T::TILE_ROWS };

    choice() {
        const std::string & allowed = switches::get().panels;
        for (const packed_gemm_variant & variant : packed_gemm_variants()) {
            packed_gemm_kernel & kernel = variant.tiles ? tiles : vectors;
            if (!kernel && (allowed == "1" || allowed == variant.name)) {
                kernel = variant.find(T::TYPE);
            }
        }
    }
    static choice & get() {
        static choice c;
        return c;
    }
    static void vectors_or_tiles(const packed_gemm_call & call) {
        const choice & c = get();
        (call.n_rows >= c.tile_rows.load(std::memory_order_relaxed) ? c.tiles : c.vectors)(call);
    }
    packed_gemm_kernel kernel() const { return vectors && tiles ? vectors_or_tiles : vectors ? vectors : tiles; }
};

}   // namespace

packed_gemm_kernel choose_packed_gemm(ggml_type type) {
    return with_weight_type(
        type, (packed_gemm_kernel) nullptr, [](auto t) { return choice<decltype(t)>::get().kernel(); });
}

int packed_gemm_tile_rows(ggml_type type) {
    return with_weight_type(type, 0, [](auto t) {
        const auto & c = choice<decltype(t)>::get();
        return c.vectors && c.tiles ? c.tile_rows.load() : 0;
    });
}

void set_packed_gemm_tile_rows(ggml_type type, int n_rows) {
    for_each_weight_type([&](auto record) {
        if (record.TYPE == type) {
            choice<decltype(record)>::get().tile_rows = n_rows;
        }
    });
}

}   // namespace dflash
