// Switches for measurements: environment variables that disable our parts (docs/kernels.md). They are read once.

#pragma once

#include <cstdlib>
#include <cstring>
#include <string>

namespace dflash {

class switches {
    static bool is_on(const char * name) {
        const char * s = std::getenv(name);
        return !(s && std::strcmp(s, "0") == 0);
    }
    static std::string text_of(const char * name) {
        const char * s = std::getenv(name);
        return s ? s : "1";
    }
    std::string packed_gemm_variant_ = text_of("DFLASH_PANELS");

  public:
    bool attention   = is_on("DFLASH_ATTENTION");
    bool float_gemm  = is_on("DFLASH_DENSE");
    bool fused_ops   = is_on("DFLASH_FUSED");   // and RoPE
    bool packed_gemm = is_on("DFLASH_PANELS");
    bool amx         = is_on("DFLASH_AMX");

    bool allows_packed_gemm(const char * variant) const {
        return packed_gemm_variant_ == "1" || packed_gemm_variant_ == variant;
    }

    static const switches & get() {
        static const switches all;
        return all;
    }
};

}   // namespace dflash
