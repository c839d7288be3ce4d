// The same tests without a futex.

#define DFLASH_NO_FUTEX
#include "../../cpu/threads/waiting.cpp"   // NOLINT(bugprone-suspicious-include)
#include "test_waiting.cpp"                // NOLINT(bugprone-suspicious-include)
