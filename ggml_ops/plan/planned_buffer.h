// Buffers without memory: what would be allocated can be counted before it is. Part of ggml-base: patches/0018 lets
// every buffer come through alloc_buffer().

#pragma once

#include "ggml-backend.h"

#include <stddef.h>

namespace dflash {

// Between the two, the buffers that this thread makes have a type, a size and addresses, and no memory. They may
// outlive it. Nothing can be computed in them, what is written is lost, and what is read is 0.
GGML_API void plan_begin();
GGML_API void plan_end();

class plan_scope {
  public:
    plan_scope() { plan_begin(); }
    ~plan_scope() { plan_end(); }
    plan_scope(const plan_scope &)             = delete;
    plan_scope & operator=(const plan_scope &) = delete;
};

// A buffer of this type, size > 0; null where there is no memory.
ggml_backend_buffer_t alloc_buffer(ggml_backend_buffer_type_t type, size_t size);

}   // namespace dflash
