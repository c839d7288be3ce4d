#include "media/encoder_turns.h"

namespace dflash {

void encoder_turns::begin_step() {
    std::unique_lock<std::mutex> lock(mutex_);
    step_waits_ = true;
    changed_.wait(lock, [&] { return turn_ == turn::none && !encoder_is_next_; });
    step_waits_ = false;
    turn_       = turn::step;
    begin_      = clock::now();
}

void encoder_turns::end_step() {
    const std::lock_guard<std::mutex> lock(mutex_);
    step_            = clock::now() - begin_;
    turn_            = turn::none;
    encoder_is_next_ = encoder_waits_;   // else a step that follows at once would always come first
    changed_.notify_all();
}

void encoder_turns::begin_encoding() {
    std::unique_lock<std::mutex> lock(mutex_);
    wait(lock);
}

void encoder_turns::end_encoding() {
    const std::lock_guard<std::mutex> lock(mutex_);
    turn_ = turn::none;
    changed_.notify_all();
}

void encoder_turns::yield() {
    std::unique_lock<std::mutex> lock(mutex_);
    if (step_waits_ && clock::now() - begin_ >= step_) {
        turn_ = turn::none;
        changed_.notify_all();
        wait(lock);
    }
}

// For the encoder's next turn.
void encoder_turns::wait(std::unique_lock<std::mutex> & lock) {
    encoder_waits_ = true;
    changed_.wait(lock, [&] { return turn_ == turn::none && (encoder_is_next_ || !step_waits_); });
    encoder_waits_ = encoder_is_next_ = false;
    turn_                             = turn::encoder;
    begin_                            = clock::now();
}

}   // namespace dflash
