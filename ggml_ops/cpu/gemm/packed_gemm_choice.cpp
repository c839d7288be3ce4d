#include "cpu/gemm/packed_gemm_choice.h"

#include "cpu/gemm/weight_types.h"
#include "cpu/isa/kernels.h"
#include "cpu/switches.h"
#include "ggml-impl.h"

#include <atomic>
#include <string>
#include <vector>

namespace dflash {

namespace {

// Those that DFLASH_PANELS allows. A name that this CPU does not know switches panels off, and only the speed shows it.
const std::vector<packed_gemm_variant> & allowed_variants() {
    static const std::vector<packed_gemm_variant> allowed = [] {
        const std::string &              wanted = switches::get().panels;
        std::vector<packed_gemm_variant> found;
        std::string                      names;
        for (const packed_gemm_variant & variant : packed_gemm_variants()) {
            names += std::string(", ") + variant.name;
            if (wanted == "1" || wanted == variant.name) {
                found.push_back(variant);
            }
        }
        if (found.empty() && wanted != "0" && wanted != "1") {
            GGML_LOG_WARN(
                "DFLASH_PANELS=%s packs no weights on this CPU: it may be 0, 1%s\n", wanted.c_str(), names.c_str());
        }
        return found;
    }();
    return allowed;
}

template <class T> struct choice {
    packed_gemm_kernel vectors = nullptr, tiles = nullptr;
    std::atomic<int>   tile_rows{ T::TILE_ROWS };

    choice() {
        for (const packed_gemm_variant & variant : allowed_variants()) {
            packed_gemm_kernel & kernel = variant.tiles ? tiles : vectors;
            kernel                      = kernel ? kernel : variant.find(T::TYPE);
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
