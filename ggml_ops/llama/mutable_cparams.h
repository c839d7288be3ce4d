// Settings of a context's graphs, which llama_context hands out for reading only.

#pragma once

#include "llama-context.h"

namespace dflash {

// Settings to be changed between passes. The cast is allowed: get_cparams() refers to a member of a context that is not
// const. The next graph that is built sees the change. A graph that could be reused does not, so either no graph has
// been built yet, or can_reuse() of one of its inputs compares the setting.
inline llama_cparams & mutable_cparams(llama_context * ctx) { return const_cast<llama_cparams &>(ctx->get_cparams()); }

}   // namespace dflash
