// The kernels of each instruction set. isa/<set>.cpp includes its vectors and compiles all kernel templates with them
// into one table. kernels.cpp selects the tables that this CPU supports at run time.

#pragma once

#include "cpu/attention/attention_no_flash.h"
#include "cpu/attention/flash_attention.h"
#include "cpu/elementwise/elementwise.h"
#include "cpu/gemm/float_gemm.h"
#include "cpu/gemm/packed_gemm_call.h"
#include "cpu/quantize_rows/quantize_rows.h"
#include "ggml.h"

#include <vector>

namespace dflash {

// Kernels for packed weights. A set has variants of them: with and without byte dot product instructions.
struct packed_gemm_variant {
    const char * name;                                 // its name in DFLASH_PANELS; null: the variant does not exist
    bool (*is_supported)()                = nullptr;   // by this CPU
    packed_gemm_kernel (*find)(ggml_type) = nullptr;   // null for types without a kernel
    bool tiles                            = false;     // for many rows (AMX), beside the vectors of another variant
};

struct kernel_table {
    const char *               name;
    flash_attention_kernel     flash_attention;
    attention_no_flash_kernels attention_no_flash;
    float_gemm_kernel          float_gemm;
    elementwise_kernels        elementwise;
    quantize_row_kernel        quantize_row;     // null if it has none
    packed_gemm_variant        packed_gemm[2];   // fastest first
};

// Null on other processors and with compilers that do not support the set.
const kernel_table *        avx512_kernels();
const kernel_table *        avx2_kernels();
const kernel_table *        neon_kernels();
const packed_gemm_variant * amx_packed_gemm();   // tiles, for many rows

// The tables that this CPU can run, best first.
const std::vector<const kernel_table *> & kernel_tables();
const kernel_table *                      best_kernels();   // null if there is none
// Variants of packed GEMM, best for few rows first; AMX is last.
const std::vector<packed_gemm_variant> & packed_gemm_variants();

}   // namespace dflash
