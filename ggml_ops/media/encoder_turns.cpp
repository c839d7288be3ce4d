#include "media/encoder_turns.h"

#include <algorithm>

namespace dflash {

void encoder_turns::begin_step() {
    std::unique_lock<std::mutex> lock(mutex_);
    step_waits_ = true;
    while (turn_ != turn::none && !(hold_ && encoder_had_its_turn())) {
        if (hold_) {
            changed_.wait_until(lock, end_);
        } else {
            changed_.wait(lock);
        }
    }
    step_waits_ = false;
    turn_       = turn::step;
    begin_      = clock::now();
    if (hold_) {
        hold_(true);
    }
}

void encoder_turns::end_step() {
    const std::lock_guard<std::mutex> lock(mutex_);
    const clock::time_point           now  = clock::now();
    const clock::duration             step = now - begin_;
    if (hold_) {
        hold_(false);
    }
    if (!encodes_) {
        alone_ = alone_.count() == 0 ? step : std::min(step, alone_ + alone_ / 16);   // a prompt's pass says nothing
    }
    turn_ = encodes_ ? turn::encoder : turn::none;
    end_  = now + share_after(step);
    changed_.notify_all();
}

// The next step should end at most two steps after this one, as they take without an encoder: beside it, memory is
// shared and caches are cold. Always some of the time, so that encoding goes on.
encoder_turns::clock::duration encoder_turns::share_after(clock::duration step) const {
    const clock::duration most = step / 2, least = step / 4;
    return alone_.count() == 0 ? most : std::clamp(2 * alone_ - step, least, most);
}

void encoder_turns::begin_encoding() {
    std::unique_lock<std::mutex> lock(mutex_);
    encodes_ = true;
    changed_.wait(lock, [&] { return turn_ != turn::step; });
    turn_ = turn::encoder;
}

void encoder_turns::end_encoding() {
    const std::lock_guard<std::mutex> lock(mutex_);
    encodes_ = false;
    if (turn_ == turn::encoder) {   // else a step has overtaken it
        turn_ = turn::none;
    }
    changed_.notify_all();
}

void encoder_turns::yield() {
    std::unique_lock<std::mutex> lock(mutex_);
    if (turn_ == turn::encoder && step_waits_ && encoder_had_its_turn()) {
        turn_ = turn::none;
        changed_.notify_all();
        changed_.wait(lock, [&] { return turn_ != turn::none || !step_waits_; });
    }
    changed_.wait(lock, [&] { return turn_ != turn::step; });
    turn_ = turn::encoder;
}

}   // namespace dflash
