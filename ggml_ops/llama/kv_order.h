// The cells of a KV cache in the order of the tokens: sums over a sequence's cells then run in one order, whatever else
// the cache holds (docs/trees.md). Part of libllama: patches/0009 calls it from llama_kv_cache.

#pragma once

#include <cstdint>

class llama_kv_cache;

namespace dflash {

class kv_order {
  public:
    explicit kv_order(llama_kv_cache & kv) : kv(kv) {}

    // From now on a token takes a cell above those of its sequence, and where none is free there, the cells in use
    // move down first. Returns false where the host cannot move them: tokens take any free cell then.
    bool enable();
    bool enabled() const { return is_enabled; }

    // Moves all cells in use down to the first ones, in their order. Returns false if nothing moved, or if the cache
    // is not ordered.
    bool pack();

    uint32_t n_packed = 0;   // how often it did

  private:
    llama_kv_cache & kv;
    bool             is_enabled = false;

    bool pack_stream(uint32_t strm);
};

}   // namespace dflash
