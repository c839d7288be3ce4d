// llama.cpp's JSON type, which keeps nlohmann's templates out of the files that include it.

#pragma once

#include "common/json.h"

namespace dflash {

using json = common_json;

}   // namespace dflash
