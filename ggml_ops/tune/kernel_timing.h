// Times a device's two kernels for quantized weights: the vector kernel, for few rows, and the matrix kernel (tiles).
//
// Both are timed for every number of rows on weights of a model's shape. dflash_local/machine/tuning.py evaluates the
// times.

#pragma once

#include "dflash.h"

#include "ggml-backend.h"

#include <string>

namespace dflash {

// The row count at which a device's matrix kernel takes over, for weights of one type.
class matrix_rows {
  public:
    // Throws status_error if there is no such device or type.
    matrix_rows(const char * device, const char * type);

    // 0: the device has only one kernel for the type, or no way to choose.
    int get() const;
    // Limited to one more than the vector kernel supports; 0 restores the device's own choice.
    void set(int rows) const;

    ggml_backend_dev_t device() const { return device_; }
    ggml_type          type() const { return type_; }

  private:
    ggml_backend_dev_t device_;
    ggml_type          type_;
    int                index_ = 0;   // index of the device in its registry
    // From the registry: one function of a GPU (patches/0010), or two of the CPU (cpu/dispatch.h).
    int (*gpu_rows_)(int device, ggml_type type, int rows) = nullptr;
    int (*tile_rows_)(ggml_type type)                      = nullptr;
    void (*set_tile_rows_)(ggml_type type, int rows)       = nullptr;
};

// JSON of dflash_tune(). Throws status_error.
std::string tune(const dflash_tune_params & params, dflash_progress_callback progress, void * user);

}   // namespace dflash
