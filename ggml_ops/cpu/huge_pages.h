// Huge pages for memory that every pass reads (packed weights, K and V), to reduce address translation. Only a hint.

#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace dflash {

// Call before `data` is first touched. Does nothing on systems without huge pages.
inline void ask_for_huge_pages(void * data, size_t size) {
#if defined(__linux__)
    constexpr uintptr_t PAGE  = 4096,
                        LEAST = 4 << 20;   // smaller blocks may not contain a whole huge page
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
