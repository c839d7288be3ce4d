// The text of measured passes is as varied as text is.
//
//   test_sample_text MODEL.gguf

#include "engine/sample_text.h"
#include "pocket_parts.h"

#include <set>

using namespace dflash;

int main(int, char ** argv) {
    pocket_parts parts(argv[1]);
    sample_text  text(parts.target.vocab());
    tokens       pass(64);
    for (int32_t n_passes = 0; n_passes < 20; ++n_passes) {   // more than the text has
        for (int32_t & token : pass) {
            token = text.next();
            CHECK(token >= 0 && token < parts.target.n_vocab());
        }
        CHECK(std::set<int32_t>(pass.begin(), pass.end()).size() >= 24);
    }
    return TEST_RESULT;
}
