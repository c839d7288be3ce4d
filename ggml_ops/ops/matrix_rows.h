// From how many rows on a matrix kernel (tiles) serves quantized weights instead of the vector kernel: the backends' hook for what was measured
// (src/tune.h). patches/0010 lets a backend registry give it out as "dflash_matrix_rows", and the CUDA backend has one of its own.

#pragma once

#include "ggml.h"

// Sets the count of a device's (its index in its registry) and a type's products if rows > 0, gives the choice back to the backend if rows is 0, and only asks
// if rows < 0. Returns the count in force, which is at most one more than the vector kernel can serve, or 0 where there is nothing to choose.
int dflash_cpu_matrix_rows(int device, ggml_type type, int rows);
