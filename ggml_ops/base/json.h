// llama.cpp's own JSON, which keeps nlohmann's templates out of every file that includes it.

#pragma once

#include "common/json.h"

namespace dflash {

using json = common_json;

}   // namespace dflash
