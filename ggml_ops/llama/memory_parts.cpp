#include "llama/memory_parts.h"

#include "llama-kv-cache-iswa.h"
#include "llama-kv-cache.h"
#include "llama-memory-hybrid.h"

#include <typeinfo>

namespace dflash {

memory_parts::memory_parts(const llama_memory_i * memory) {
    if (!memory) {
        return;
    }
    if (typeid(*memory) == typeid(llama_kv_cache)) {
        kv = const_cast<llama_kv_cache *>(static_cast<const llama_kv_cache *>(memory));   // as the others give theirs
    } else if (typeid(*memory) == typeid(llama_kv_cache_iswa)) {
        kv     = static_cast<const llama_kv_cache_iswa *>(memory)->get_base();
        window = static_cast<const llama_kv_cache_iswa *>(memory)->get_swa();
    } else if (typeid(*memory) == typeid(llama_memory_hybrid)) {
        kv     = static_cast<const llama_memory_hybrid *>(memory)->get_mem_attn();
        states = static_cast<const llama_memory_hybrid *>(memory)->get_mem_recr();
    }
}

std::vector<llama_kv_cache *> memory_parts::caches() const {
    std::vector<llama_kv_cache *> known;
    for (llama_kv_cache * cache : { kv, window }) {
        if (cache) {
            known.push_back(cache);
        }
    }
    return known;
}

}   // namespace dflash
