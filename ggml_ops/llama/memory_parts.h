// The parts of a memory that hold tokens and states. Part of libllama.

#pragma once

#include <vector>

class llama_kv_cache;
class llama_memory_recurrent;
struct llama_memory_i;

namespace dflash {

// Subclasses of llama.cpp's memories may derive more data from cells, so they are not known here.
struct memory_parts {
    llama_kv_cache *         kv     = nullptr;   // null: unknown
    llama_kv_cache *         window = nullptr;   // the second cache of a model with sliding windows
    llama_memory_recurrent * states = nullptr;   // of a hybrid

    explicit memory_parts(const llama_memory_i * memory);   // null: there is none

    std::vector<llama_kv_cache *> caches() const;   // those that are known
};

}   // namespace dflash
