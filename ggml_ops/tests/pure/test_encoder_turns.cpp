// A step and the encoder take turns, and neither waits for more than one of the other's.

#include "media/encoder_turns.h"

#include "check.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

using namespace dflash;

static void sleep_ms(int32_t ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

static void ops_and_steps_take_turns() {
    encoder_turns     turns(nullptr);
    std::atomic<bool> encodes{ false }, done{ false };
    std::atomic<int>  n_pieces{ 0 }, most_pieces{ 0 };   // of the encoder since the last step, and at most
    std::thread       encoder([&] {
        const encoder_turns::encoding turn(turns);
        for (int i = 0; i < 40; ++i) {
            encodes = true;
            sleep_ms(1);
            ++n_pieces;
            encodes = false;
            turns.yield();
        }
        done = true;
    });
    int               n_steps = 0;
    while (!done) {
        const encoder_turns::step turn(turns);
        CHECK(!encodes);   // one at a time
        most_pieces = std::max(most_pieces.load(), n_pieces.exchange(0));
        ++n_steps;
        sleep_ms(5);
    }
    encoder.join();
    CHECK(n_steps >= 3);              // steps went on while it encoded
    CHECK(most_pieces.load() < 40);   // and it went on between steps, not at their end
    {
        const encoder_turns::step turn(turns);   // nobody waits
    }
    const encoder_turns::encoding turn(turns);
}

using clock_type = encoder_turns::clock;

static std::mutex             pause_mutex;
static clock_type::time_point pause_begin, pause_end;

static void pause_encoder(clock_type::time_point begin, clock_type::time_point end) {
    const std::lock_guard<std::mutex> lock(pause_mutex);
    pause_begin = begin;
    pause_end   = end;
}

static bool pauses_at(clock_type::time_point time) {
    const std::lock_guard<std::mutex> lock(pause_mutex);
    return pause_begin <= time && time < pause_end;
}

// An op that lasts as long as ten steps: it pauses while they compute, and in between it has its time.
static void steps_overtake_an_op() {
    using std::chrono::milliseconds;
    encoder_turns turns(pause_encoder);
    {
        const encoder_turns::step turn(turns);   // how long one takes
        sleep_ms(20);
    }
    std::atomic<bool> begun{ false }, done{ false };
    std::thread       encoder([&] {
        const encoder_turns::encoding turn(turns);
        for (int i = 0; i < 2; ++i) {
            begun = true;
            sleep_ms(200);
            turns.yield();
        }
        done = true;
    });
    while (!begun) {
        std::this_thread::yield();
    }
    int n_steps = 0;
    while (!done) {
        const auto                asked = clock_type::now();
        const encoder_turns::step turn(turns);
        const auto                begin = clock_type::now();
        if (n_steps > 0 && begin < asked + milliseconds(100) && !done) {
            CHECK(begin - asked >= milliseconds(5));   // the encoder had its turn
        }
        CHECK(pauses_at(begin) && pauses_at(begin + milliseconds(1000)));
        ++n_steps;
        sleep_ms(20);
    }
    encoder.join();
    CHECK(n_steps >= 4);
    CHECK(!pauses_at(clock_type::now() + milliseconds(1000)));   // no step came
}

// Slots that wait for the encoder do not stop it.
static void empty_steps_take_no_time() {
    encoder_turns turns(pause_encoder);
    {
        encoder_turns::step turn(turns);
        turn.computes_nothing();
        CHECK(pauses_at(clock_type::now()));
    }
    CHECK(!pauses_at(clock_type::now()));
}

int main() {
    ops_and_steps_take_turns();
    steps_overtake_an_op();
    empty_steps_take_no_time();
    return TEST_RESULT;
}
