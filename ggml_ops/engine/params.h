// The parameters of an engine, checked before a file is opened.

#pragma once

#include "dflash.h"

namespace dflash {

// With defaults in place of what was left out. What depends on the models stays open (target). The texts that they
// point to live only during load. Throws status_error that names the field.
dflash_engine_params resolve_params(dflash_engine_params params);

}   // namespace dflash
