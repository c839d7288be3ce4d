#include "cpu/isa/kernels.h"

namespace dflash {

const std::vector<const kernel_table *> & kernel_tables() {
    static const std::vector<const kernel_table *> supported = [] {
        std::vector<const kernel_table *> tables;
        for (const kernel_table * table : { avx512_kernels(), avx2_kernels(), neon_kernels() }) {
            if (table) {
                tables.push_back(table);
            }
        }
        return tables;
    }();
    return supported;
}

const kernel_table * best_kernels() {
    static const kernel_table * const best = kernel_tables().empty() ? nullptr : kernel_tables()[0];
    return best;
}

const std::vector<packed_gemm_variant> & packed_gemm_variants() {
    static const std::vector<packed_gemm_variant> supported = [] {
        std::vector<packed_gemm_variant> variants;
        const auto                       add = [&](const packed_gemm_variant & variant) {
            if (variant.name && variant.is_supported()) {
                variants.push_back(variant);
            }
        };
        for (const int i : { 0, 1 }) {
            for (const kernel_table * table : kernel_tables()) {
                add(table->packed_gemm[i]);
            }
        }
        if (amx_packed_gemm()) {
            add(*amx_packed_gemm());
        }
        return variants;
    }();
    return supported;
}

}   // namespace dflash
