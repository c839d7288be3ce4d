// A verified tree for a request with return_drafts. No llama.cpp types.

#pragma once

#include "base/tree.h"
#include "dflash.h"
#include "draft/quotation.h"

#include <cstdint>
#include <vector>

namespace dflash {

class verified_tree {
  public:
    // drafted_by: the dflash_origin of candidates; quoted: the quotation that the tree was also grown from; path: the
    // accepted nodes, the anchor first.
    void set(const tree & t, int32_t drafted_by, const quotation & quoted, const std::vector<int32_t> & path);
    void clear() { *this = {}; }

    dflash_verified_tree view() const;   // valid until the next change

  private:
    std::vector<int32_t> tokens_, parents_, origins_, path_;
    std::vector<float>   probs_, values_;
};

}   // namespace dflash
