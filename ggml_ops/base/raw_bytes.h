// Large blocks of memory that are written before they are read. Growing one does not zero it.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace dflash {

template <class T> struct raw_allocator : std::allocator<T> {
    template <class U> struct rebind {
        using other = raw_allocator<U>;
    };
    template <class U> void                construct(U *) noexcept {}
    template <class U, class... Args> void construct(U * p, Args &&... args) { ::new ((void *) p) U(args...); }
};

using raw_bytes = std::vector<uint8_t, raw_allocator<uint8_t>>;

}   // namespace dflash
