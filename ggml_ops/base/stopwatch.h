// Measures milliseconds.

#pragma once

#include <chrono>

namespace dflash {

class stopwatch {
  public:
    // Milliseconds since the start.
    double ms() const { return std::chrono::duration<double, std::milli>(clock::now() - start_).count(); }

  private:
    using clock = std::chrono::steady_clock;

    clock::time_point start_ = clock::now();
};

// Adds the milliseconds of its life to `total`.
class lap_timer {
  public:
    explicit lap_timer(double & total) : total_(total) {}
    lap_timer(const lap_timer &) = delete;
    ~lap_timer() { total_ += watch_.ms(); }

  private:
    double &        total_;
    const stopwatch watch_;
};

}   // namespace dflash
