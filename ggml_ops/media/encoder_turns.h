// Who computes: a step of the engine, or the encoder of media. They take turns, so that an encoder on the same cores
// costs other slots less than another step each.

#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace dflash {

class encoder_turns {
  public:
    // hold: makes the encoder wait within an op, or no longer (cpu/threads/background.h). Then a step begins when the
    // encoder's turn is over; null: when its op is.
    using hold_function = void(bool);
    explicit encoder_turns(hold_function * hold) : hold_(hold) {}

    // While one is alive, a step computes.
    class step {
      public:
        explicit step(encoder_turns & turns) : turns_(turns) { turns_.begin_step(); }
        ~step() { turns_.end_step(); }
        step(const step &) = delete;

      private:
        encoder_turns & turns_;
    };
    // The same for the encoding of a medium.
    class encoding {
      public:
        explicit encoding(encoder_turns & turns) : turns_(turns) { turns_.begin_encoding(); }
        ~encoding() { turns_.end_encoding(); }
        encoding(const encoding &) = delete;

      private:
        encoder_turns & turns_;
    };
    // Between two ops of it: lets steps go first whose turn it is.
    void yield();

  private:
    using clock = std::chrono::steady_clock;
    enum class turn { none, step, encoder };

    void begin_step();
    void end_step();
    void begin_encoding();
    void end_encoding();
    bool encoder_had_its_turn() const { return clock::now() >= end_; }
    // The encoder's time after a step that took so long.
    clock::duration share_after(clock::duration step) const;

    hold_function * const   hold_;
    std::mutex              mutex_;
    std::condition_variable changed_;
    turn                    turn_       = turn::none;
    bool                    step_waits_ = false, encodes_ = false;
    clock::time_point       begin_;        // of the step
    clock::duration         alone_{ 0 };   // that steps took lately without an encoder
    clock::time_point       end_;          // of the encoder's turn, if a step waits
};

}   // namespace dflash
