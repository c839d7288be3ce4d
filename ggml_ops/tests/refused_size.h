// Memory that runs out: blocks of one size cannot be allocated. For a program of one source file.

#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>

// Blocks of this many bytes cannot be allocated, 0: all can.
static size_t refused_size = 0;

// All forms that could meet in one block: the sanitizer wants it freed as it was allocated. Not inline, or GCC sees a
// block of `new` that is freed with free().
[[gnu::noinline]] void * operator new(size_t size, const std::nothrow_t &) noexcept {
    return size > 0 && size == refused_size ? nullptr : std::malloc(size > 0 ? size : 1);
}

[[gnu::noinline]] void * operator new(size_t size) {
    void * p = operator new(size, std::nothrow);
    return p ? p : throw std::bad_alloc();
}

[[gnu::noinline]] void operator delete(void * p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void * p, size_t) noexcept { std::free(p); }
