// The reader of GGUF headers has a table of ggml's types, so that it needs no ggml: it says what ggml says.

#include "files/gguf_file.h"

#include "check.h"

#include "ggml.h"

#include <cstring>

using namespace dflash;

int main() {
    for (uint32_t i = 0; i < GGML_TYPE_COUNT; ++i) {
        const ggml_type        type = (ggml_type) i;
        const ggml_type_info * ours = ggml_type_find(i);
        CHECK((ours != nullptr) == (ggml_type_size(type) > 0));   // 0: a type that ggml has removed
        if (ours && (std::strcmp(ours->name, ggml_type_name(type)) != 0 ||
                        (int64_t) ours->block != ggml_blck_size(type) || ours->bytes != ggml_type_size(type))) {
            std::printf("%s: %u elements in %u bytes\n", ours->name, ours->block, ours->bytes);
            CHECK(!"ggml's name and sizes");
        }
    }
    CHECK(!ggml_type_find(GGML_TYPE_COUNT));
    return TEST_RESULT;
}
