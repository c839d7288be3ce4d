// The whole test framework: CHECK prints what failed and the test ends with 1.

#pragma once

#include <cstdio>

static int g_failed = 0;

#define CHECK(what)                                                              \
    do {                                                                         \
        if (!(what)) {                                                           \
            std::printf("%s:%d: CHECK(%s) failed\n", __FILE__, __LINE__, #what); \
            ++g_failed;                                                          \
        }                                                                        \
    } while (0)

#define TEST_RESULT (g_failed ? (std::printf("%d checks failed\n", g_failed), 1) : (std::printf("ok\n"), 0))
