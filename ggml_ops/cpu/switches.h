// Switches for measurements: environment variables that disable our parts (docs/kernels.md). They are read once.

#pragma once

#include <cstdlib>
#include <string>

namespace dflash {

struct switches {
    bool        attention  = value_of("DFLASH_ATTENTION") != "0";
    bool        float_gemm = value_of("DFLASH_FLOAT_GEMM") != "0";
    bool        rope       = value_of("DFLASH_ROPE") != "0";
    bool        fused_ops  = value_of("DFLASH_FUSED") != "0";
    bool        amx        = value_of("DFLASH_AMX") != "0";
    std::string panels     = value_of("DFLASH_PANELS");   // 1: all variants of packed GEMM, or the name of one

    static const switches & get() {
        static const switches all;
        return all;
    }

  private:
    static std::string value_of(const char * name) {
        const char * value = std::getenv(name);
        return value ? value : "1";
    }
};

}   // namespace dflash
