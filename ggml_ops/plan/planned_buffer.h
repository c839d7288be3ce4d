// Buffers without memory, to count what would be allocated beforehand. Part of ggml-base: patches/0018 routes every
// buffer through alloc_buffer().

#pragma once

#include "ggml-backend.h"

#include <stddef.h>

namespace dflash {

// Between these calls, buffers created by this thread have a type, a size and addresses, but no memory. They may be
// used after plan_end(). They cannot be used for computing: writes are discarded and reads return 0.
GGML_API void plan_begin();
GGML_API void plan_end();

class plan_scope {
  public:
    plan_scope() { plan_begin(); }
    ~plan_scope() { plan_end(); }
    plan_scope(const plan_scope &)             = delete;
    plan_scope & operator=(const plan_scope &) = delete;
};

// A buffer of this type, size > 0; null if out of memory.
ggml_backend_buffer_t alloc_buffer(ggml_backend_buffer_type_t type, size_t size);

}   // namespace dflash
