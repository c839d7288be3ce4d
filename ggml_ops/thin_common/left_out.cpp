// Functions that llama-common's sources call from those that dflash_thin_common() leaves out (build_time.cmake).

#include "common/speculative.h"

#include <stdexcept>

// For upstream's drafters, when common_init_from_params() loads models. libdflash has its own and loads them itself.
common_params common_base_params_to_speculative(const common_params & /*params*/) {
    throw std::logic_error("upstream's drafters are not part of this build");
}
