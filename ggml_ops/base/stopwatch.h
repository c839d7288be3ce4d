// Measures milliseconds.

#pragma once

#include <chrono>

namespace dflash {

class stopwatch {
  public:
    // Milliseconds since the start or the last lap.
    double ms() const { return std::chrono::duration<double, std::milli>(clock::now() - start_).count(); }

    // Also adds them to `total` and starts the next lap.
    double lap(double & total) {
        const clock::time_point now = clock::now();
        const double            ms  = std::chrono::duration<double, std::milli>(now - start_).count();
        start_                      = now;
        total += ms;
        return ms;
    }

  private:
    using clock = std::chrono::steady_clock;

    clock::time_point start_ = clock::now();
};

}   // namespace dflash
