// Which of a device's two kernels for quantized weights is faster: the vector kernel, which is made for few rows, or
// the matrix kernel (tiles).
//
// Both are timed for every number of rows on weights of a model's shape; what to make of the times is Python's
// (dflash_local/diagnose/tuning.py).

#pragma once

#include "dflash.h"

#include "ggml-backend.h"

#include <string>

namespace dflash {

// From how many rows on a device's matrix kernel serves weights of a type.
class matrix_rows {
  public:
    // Throws status_error if there is no such device or type.
    matrix_rows(const char * device, const char * type);

    // 0: the device has one kernel for the type, or no way to choose.
    int get() const;
    // More than the vector kernel can serve becomes one row more than it can; 0 gives the choice back to the device.
    void set(int rows) const;

    ggml_backend_dev_t device() const { return device_; }
    ggml_type          type() const { return type_; }

  private:
    ggml_backend_dev_t device_;
    ggml_type          type_;
    int                index_ = 0;   // of the device in its registry
    // What the registry gives out: a GPU's one function (patches/0010), or the CPU's two (cpu/dispatch.h).
    int (*gpu_rows_)(int device, ggml_type type, int rows) = nullptr;
    int (*tile_rows_)(ggml_type type)                      = nullptr;
    void (*set_tile_rows_)(ggml_type type, int rows)       = nullptr;
};

// dflash_tune()'s JSON. Throws status_error.
std::string tune(const dflash_tune_params & params, dflash_progress_callback progress, void * user);

}   // namespace dflash
