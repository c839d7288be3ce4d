#include "target/cache_type.h"

#include "base/error.h"
#include "dflash.h"

#include <string>

namespace dflash {

ggml_type cache_type(const char * name, const char * field, bool drafter) {
    const std::string n = name && *name ? name : "f16";
    for (const ggml_type t : { GGML_TYPE_F16, GGML_TYPE_F32, GGML_TYPE_BF16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0,
             GGML_TYPE_Q4_1, GGML_TYPE_IQ4_NL, GGML_TYPE_Q5_0, GGML_TYPE_Q5_1 }) {
        if (n == ggml_type_name(t) && (!drafter || t == GGML_TYPE_F16 || t == GGML_TYPE_F32)) {
            return t;
        }
    }
    throw status_error(DFLASH_ERROR_ARG, field, " is '", n, "', must be ",
        (drafter ? "f16 or f32" : "one of f16, f32, bf16, q8_0, q4_0, q4_1, iq4_nl, q5_0, q5_1"));
}

}   // namespace dflash
