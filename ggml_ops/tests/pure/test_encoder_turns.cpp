// A step and the encoder take turns, and neither waits for more than one of the other's.

#include "media/encoder_turns.h"

#include "check.h"

#include <algorithm>
#include <atomic>
#include <chrono>
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

static std::atomic<int> n_holds{ 0 };

// An op that lasts as long as ten steps.
static void steps_overtake_an_op() {
    encoder_turns     turns([](bool held) { n_holds += held ? 1 : -1; });
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
        const auto                begin = std::chrono::steady_clock::now();
        const encoder_turns::step turn(turns);
        // The encoder had its turn.
        CHECK(n_steps == 0 || done || std::chrono::steady_clock::now() - begin >= std::chrono::milliseconds(5));
        CHECK(n_holds == 1);
        ++n_steps;
        sleep_ms(20);
    }
    encoder.join();
    CHECK(n_steps >= 4 && n_holds == 0);
    const encoder_turns::encoding turn(turns);
}

int main() {
    ops_and_steps_take_turns();
    steps_overtake_an_op();
    return TEST_RESULT;
}
