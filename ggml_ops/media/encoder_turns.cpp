#include "media/encoder_turns.h"

#include <algorithm>

namespace dflash {

using clock = encoder_turns::clock;

// The next step comes within this, or there is none.
static constexpr std::chrono::milliseconds BETWEEN_STEPS{ 5 };

// The encoder's time before a step: three eighths of one. Then even a step that takes half as long again as usual, as
// one in a hundred does, ends at most two steps after the one before it.
static clock::duration share_of(clock::duration step) { return 3 * step / 8; }

// ---- steps ----

void encoder_turns::begin_step() {
    std::unique_lock<std::mutex> lock(mutex_);
    if (pause_) {
        wait_for_encoder(lock);
    } else {
        wait_for_op(lock);
    }
    turn_  = turn::step;
    begin_ = clock::now();
}

// The encoder pauses during steps, and from the end of one to the beginning of the next. Its time is here, so that its
// threads are out of the way when those of the step wake.
void encoder_turns::wait_for_encoder(std::unique_lock<std::mutex> & lock) {
    const clock::time_point now = clock::now();
    if (encodes_ && now < end_ + BETWEEN_STEPS) {   // else it had all the time since
        const clock::time_point end = now + share_of(usual_);
        pause_(end, end + BETWEEN_STEPS);
        changed_.wait_until(lock, end, [&] { return !encodes_; });
    }
    pause_(clock::now(), clock::now() + std::chrono::hours(1));   // until the step ends
}

void encoder_turns::wait_for_op(std::unique_lock<std::mutex> & lock) {
    step_waits_ = true;
    changed_.wait(lock, [&] { return turn_ == turn::none; });
    step_waits_ = false;
}

void encoder_turns::end_step(bool computed) {
    const std::lock_guard<std::mutex> lock(mutex_);
    end_                       = clock::now();
    const clock::duration step = end_ - begin_;
    if (computed) {
        usual_ = usual_.count() == 0 ? step : std::min(step, usual_ + usual_ / 64);   // a prompt's pass says nothing
    }
    if (pause_) {
        pause_(end_, computed ? end_ + BETWEEN_STEPS : end_);
    }
    turn_ = encodes_ ? turn::encoder : turn::none;
    changed_.notify_all();
}

// ---- encoder ----

void encoder_turns::begin_encoding() {
    std::unique_lock<std::mutex> lock(mutex_);
    encodes_ = true;
    changed_.wait(lock, [&] { return pause_ || turn_ != turn::step; });
    turn_ = turn::encoder;
}

void encoder_turns::end_encoding() {
    const std::lock_guard<std::mutex> lock(mutex_);
    encodes_ = false;
    if (turn_ == turn::encoder) {
        turn_ = turn::none;
    }
    changed_.notify_all();
}

void encoder_turns::yield() {
    std::unique_lock<std::mutex> lock(mutex_);
    if (pause_) {   // its threads have seen to that
        return;
    }
    if (turn_ == turn::encoder && step_waits_ && clock::now() >= end_ + share_of(usual_)) {
        turn_ = turn::none;
        changed_.notify_all();
        changed_.wait(lock, [&] { return turn_ != turn::none || !step_waits_; });
    }
    changed_.wait(lock, [&] { return turn_ != turn::step; });
    turn_ = turn::encoder;
}

}   // namespace dflash
