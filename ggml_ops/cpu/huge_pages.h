// Memory that every pass reads (weights in panels, K and V): with huge pages a CPU translates fewer addresses. Asked
// for, not needed.

#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace dflash {

// Before the first touch of `data`. Where the system gives none, nothing changes.
inline void ask_for_huge_pages(void * data, size_t size) {
#if defined(__linux__)
    constexpr uintptr_t PAGE  = 4096,
                        LEAST = 4 << 20;   // of less, nothing but the heap's neighbours might lie in whole huge pages
    const uintptr_t begin = ((uintptr_t) data + PAGE - 1) / PAGE * PAGE, end = ((uintptr_t) data + size) / PAGE * PAGE;
    if (data && size >= LEAST) {
        madvise((void *) begin, end - begin, MADV_HUGEPAGE);
    }
#else
    (void) data;
    (void) size;
#endif
}

}   // namespace dflash
