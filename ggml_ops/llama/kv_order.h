// Keeps the cells of a KV cache in token order, so that sums over a sequence's cells always run in the same order,
// whatever else the cache holds (docs/trees.md). Part of libllama: patches/0009 calls it from llama_kv_cache.

#pragma once

#include <cstdint>

class llama_kv_cache;

namespace dflash {

class kv_order {
  public:
    explicit kv_order(llama_kv_cache & kv) : kv_(kv) {}

    // From now on a token takes a cell above those of its sequence; if none is free there, the used cells move down
    // first. Returns false if the host cannot move cells; tokens then take any free cell.
    bool enable();
    bool enabled() const { return is_enabled_; }

    // Moves all used cells to the beginning, keeping their order. Returns false if nothing moved or the cache is not
    // ordered.
    bool pack();

    uint32_t n_packed = 0;   // number of such moves
    uint32_t n_views  = 0;   // other caches that hold nothing but these cells and their data, so that both may move

  private:
    llama_kv_cache & kv_;
    bool             is_enabled_ = false;

    bool pack_stream(uint32_t strm);
};

}   // namespace dflash
