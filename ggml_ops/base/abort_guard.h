// Turns ggml's abort into an exception where that is safe.
//
// The second line of defence after check_gguf(): the loaders and graphs of over a hundred architectures assert on what
// a file contains, and no header checker knows them all. docs/hardening.md lists what this can and cannot catch.

#pragma once

#include <optional>

namespace dflash {

// While one is alive, GGML_ASSERT and GGML_ABORT on this thread throw std::runtime_error with ggml's message
// ("file:line: ...").
//
// load: around the creation of a model or context. llama.cpp's own handlers clean up and report the failure.
// pass: around llama_process(). Throws only while a graph is built; inside a kernel the process still ends, since other
// threads wait for this one. After a throw the context holds a half-built graph: free it and do not use it again.
class abort_guard {
  public:
    enum class phase { load, pass };

    explicit abort_guard(phase now);
    ~abort_guard();

    abort_guard(const abort_guard &)             = delete;
    abort_guard & operator=(const abort_guard &) = delete;

  private:
    std::optional<phase> outer_;   // the enclosing one
};

}   // namespace dflash
