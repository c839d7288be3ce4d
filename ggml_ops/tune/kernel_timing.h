// Times a device's kernels for quantized weights: the vector kernel, for a row or a few, the matrix kernel (tiles), and
// on CUDA our own for up to 64 rows.
//
// All are timed for numbers of rows on weights of a model's shape. dflash_local/machine/tuning.py evaluates the times.

#pragma once

#include "dflash.h"

#include "ggml-backend.h"

#include <string>

namespace dflash {

// From how many rows on a kernel serves; 0: the device's own choice.
struct kernel_rows {
    int matrix = 0, few = 0;
};

// The kernels of a device for weights of one type.
class device_kernels {
  public:
    // Throws status_error if there is no such device or type.
    device_kernels(const char * device, const char * type);

    // The counts in force. 0: there is no such kernel beside the vector kernel, or no way to choose.
    kernel_rows get() const;
    // The matrix kernel's is limited to one more than the vector kernel supports.
    void set(kernel_rows rows) const;
    void set_matrix(int rows) const;
    void set_few(int rows) const;

    ggml_backend_dev_t device() const { return device_; }
    ggml_type          type() const { return type_; }

  private:
    ggml_backend_dev_t device_;
    ggml_type          type_;
    int                index_ = 0;   // index of the device in its registry
    // From the registry: functions of a GPU (patches/0010, 0032), or two of the CPU (cpu/dispatch.h).
    int (*gpu_rows_)(int device, ggml_type type, int rows)     = nullptr;
    int (*gpu_few_rows_)(int device, ggml_type type, int rows) = nullptr;
    int (*tile_rows_)(ggml_type type)                          = nullptr;
    void (*set_tile_rows_)(ggml_type type, int rows)           = nullptr;
};

// JSON of dflash_tune(). Throws status_error.
std::string tune(const dflash_tune_params & params, dflash_progress_callback progress, void * user);

}   // namespace dflash
