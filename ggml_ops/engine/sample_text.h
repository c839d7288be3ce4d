// Ordinary text for passes whose cost is measured.

#pragma once

#include "llama.h"

#include <cstddef>
#include <vector>

namespace dflash {

// Tokens of prose, code, data and other languages, over and over. Copies of one token would be routed to the same
// experts of a mixture, and a pass of many rows would look as cheap as one of a single row.
class sample_text {
  public:
    // A vocabulary without a tokenizer, or whose tokenizer fails, gives its BOS token (else token 0) alone.
    explicit sample_text(const llama_vocab * vocab);

    llama_token next();

  private:
    std::vector<llama_token> tokens_;
    size_t                   at_ = 0;
};

}   // namespace dflash
