// Packed GEMM for AMX, in tiles of 16 rows: bit-identical to the vector kernels of isa/avx512.cpp.

#include "cpu/isa/kernels.h"

#if defined(__x86_64__) && defined(__linux__) && (__GNUC__ >= 11 || __clang_major__ >= 12) && !defined(DFLASH_NO_AMX)

#include "cpu/isa/vectors.h"
#include "cpu/switches.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <type_traits>
#include <vector>

namespace dflash {

namespace {

namespace amx {
#define ISA_ATTRIBUTE \
    __attribute__((target("amx-tile,amx-int8,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,f16c,fma")))
#define ISA_VNNI 1
#include "cpu/isa/vectors_avx512.h"
#include "cpu/gemm/packed_gemm_amx.h"
#undef ISA_ATTRIBUTE
#undef ISA_VNNI
}   // namespace amx

// Whether the CPU has AMX and the system allows this process to use it.
bool has_amx() {
    static const bool yes = [] {
        unsigned a, b, c, d;
        if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE) || !__get_cpuid_count(7, 0, &a, &b, &c, &d) ||
            !(d & 1u << 24) || !(d & 1u << 25)) {
            return false;
        }
        unsigned low, high;
        __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
        constexpr long REQUEST_PERMISSION = 0x1023, TILE_DATA = 18;
        return has_vnni() && (low >> 17 & 3) == 3 && switches::get().amx &&
               syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
    }();
    return yes;
}

}   // namespace

const packed_gemm_variant * amx_packed_gemm() {
    static const packed_gemm_variant variant = { "amx", has_amx, amx::find_packed_gemm, true };
    return &variant;
}

}   // namespace dflash

#else

namespace dflash {
const packed_gemm_variant * amx_packed_gemm() { return nullptr; }
}   // namespace dflash

#endif
