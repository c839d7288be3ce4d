// Who computes: a step of the engine, or the encoder of media. They take turns, so that an encoder on the same cores
// costs other slots less than another step each.

#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace dflash {

class encoder_turns {
  public:
    using clock = std::chrono::steady_clock;
    // pause: makes the encoder wait within an op from begin until end (cpu/threads/background.h). Null: it can wait
    // between ops only, and a step waits for that.
    using pause_function = void(clock::time_point begin, clock::time_point end);
    explicit encoder_turns(pause_function * pause) : pause_(pause) {}

    // While one is alive, a step computes.
    class step {
      public:
        explicit step(encoder_turns & turns) : turns_(turns) { turns_.begin_step(); }
        ~step() { turns_.end_step(computed_); }
        step(const step &) = delete;
        // Every slot waits: this step says nothing of how long one takes, nor when the next one comes.
        void computes_nothing() { computed_ = false; }

      private:
        encoder_turns & turns_;
        bool            computed_ = true;
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
    enum class turn { none, step, encoder };

    void begin_step();
    void end_step(bool computed);
    void begin_encoding();
    void end_encoding();
    void wait_for_encoder(std::unique_lock<std::mutex> & lock);
    void wait_for_op(std::unique_lock<std::mutex> & lock);

    pause_function * const  pause_;
    std::mutex              mutex_;
    std::condition_variable changed_;
    turn                    turn_       = turn::none;
    bool                    step_waits_ = false, encodes_ = false;
    clock::time_point       begin_, end_;   // of the last step
    clock::duration         usual_{ 0 };    // that a step takes; the quickest of late
};

}   // namespace dflash
