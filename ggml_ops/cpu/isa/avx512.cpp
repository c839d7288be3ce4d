// All kernels for AVX-512; those for packed weights also with VNNI.

#include "cpu/isa/kernels.h"

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__)) && !defined(DFLASH_NO_AVX512)

#include "cpu/isa/vectors.h"

namespace dflash {

namespace {

namespace avx512_vnni {
#define ISA_ATTRIBUTE __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,f16c,fma")))
#define ISA_VNNI      1
#include "cpu/isa/vectors_avx512.h"
#include "cpu/gemm/packed_gemm_kernels.h"
#undef ISA_ATTRIBUTE
#undef ISA_VNNI
}   // namespace avx512_vnni

namespace avx512 {
#define ISA_ATTRIBUTE __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,f16c,fma")))
#define ISA_VNNI      0
#include "cpu/isa/vectors_avx512.h"
#include "cpu/attention/attention_blocks.h"
#include "cpu/attention/flash_attention_kernel.h"
#include "cpu/attention/attention_no_flash_kernels.h"
#include "cpu/elementwise/elementwise_kernels.h"
#include "cpu/gemm/float_gemm_kernels.h"
#include "cpu/gemm/packed_gemm_kernels.h"
#undef ISA_ATTRIBUTE
#undef ISA_VNNI
}   // namespace avx512

}   // namespace

const kernel_table * avx512_kernels() {
    static const kernel_table table = {
        /* .name               = */ "avx512",
        /* .flash_attention    = */ { avx512::BLOCK, avx512::flash_attention },
        /* .attention_no_flash = */
        { avx512::BLOCK, avx512::transpose_k, avx512::multiply_q_k, avx512::softmax, avx512::multiply_weights_v },
        /* .float_gemm         = */ avx512::float_gemm,
        /* .elementwise        = */ { avx512::add, avx512::rms_norm, avx512::rotate },
        /* .quantize_row       = */ nullptr,
        /* .packed_gemm        = */
        { { "avx512-vnni", has_vnni, avx512_vnni::find_packed_gemm },
            { "avx512", has_avx512, avx512::find_packed_gemm } },
    };
    return has_avx512() ? &table : nullptr;
}

}   // namespace dflash

#else

namespace dflash {
const kernel_table * avx512_kernels() { return nullptr; }
}   // namespace dflash

#endif
