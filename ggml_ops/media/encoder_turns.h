// Who computes: a step of the engine, or the encoder of media, which yields between two ops. So an encoder on the same
// cores costs other slots no more than another step each.

#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace dflash {

class encoder_turns {
  public:
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
    // Between two ops of it: lets a step that waits go first, once it has computed as long as the last step did.
    void yield();

  private:
    using clock = std::chrono::steady_clock;
    enum class turn { none, step, encoder };

    void begin_step();
    void end_step();
    void begin_encoding();
    void end_encoding();
    void wait(std::unique_lock<std::mutex> & lock);

    std::mutex              mutex_;
    std::condition_variable changed_;
    turn                    turn_       = turn::none;
    bool                    step_waits_ = false, encoder_waits_ = false, encoder_is_next_ = false;
    clock::time_point       begin_;       // of this turn
    clock::duration         step_{ 0 };   // that the last step took
};

}   // namespace dflash
