// What a drafter holds of each slot: of the positions whose taps it has read, as much as its passes attend to.

#pragma once

#include "draft/ring_copy.h"

#include "ggml-backend.h"

#include <cstddef>
#include <cstdint>
#include <map>

namespace dflash {

class draft_context {
  public:
    virtual ~draft_context() = default;

    // The taps of positions below it are read.
    virtual int32_t end(int32_t slot) const = 0;
    // Forgets positions >= pos. If pos > end, forgets everything and goes on at pos.
    virtual void rewind(int32_t slot, int32_t pos) = 0;
    // Forgets all positions; the next one will be pos.
    virtual void restart(int32_t slot, int32_t pos) = 0;

    // take() copies the slot's positions below `end`. put() puts them into any slot, of this context or another one of
    // the same drafter. If the sizes do not fit, put() throws std::runtime_error and changes nothing.
    virtual ring_copy take(int32_t slot, int32_t end) const     = 0;
    virtual void      put(int32_t slot, const ring_copy & copy) = 0;
    // Bytes of a copy of all that the slot holds.
    virtual size_t copy_bytes(int32_t slot) const = 0;
    // Whether put() takes a copy of such sizes.
    virtual bool has_sizes(const ring_copy & /*copy*/) const { return true; }
    // Puts a slot's positions below `end` into another one, without a copy where both can hold the same cells.
    virtual void share(int32_t from, int32_t to, int32_t end) { put(to, take(from, end)); }
    // The slot is set aside: leaves its cells to the others, if they share them, until it comes back.
    virtual void leave(int32_t /*slot*/) {}
    virtual void come_back(int32_t /*slot*/) {}
    // Whether a copy from outside fits such a context and holds finite numbers.
    virtual bool fits(const ring_copy & copy) const = 0;

    virtual std::map<ggml_backend_buffer_type_t, size_t> memory() const = 0;   // bytes by buffer type
    // Bytes on the host for positions that passes no longer attend to, of all slots, and their limit.
    virtual size_t history_bytes() const { return 0; }
    virtual size_t history_limit() const { return 0; }
};

}   // namespace dflash
