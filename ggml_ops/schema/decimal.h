// Bounds and divisors of numbers as automata over the numbers' texts. They are decimal because schemas are: no binary
// fraction equals 0.1.

#pragma once

#include "schema/automaton.h"

#include <optional>
#include <string>
#include <vector>

namespace dflash {

struct decimal {
    bool        negative = false;
    std::string whole    = "";   // digits without leading zeros
    std::string fraction = "";   // digits without trailing zeros

    bool is_zero() const { return whole.empty() && fraction.empty(); }
};

// Parses a JSON number. Throws std::invalid_argument if it has more than MAX_DIGITS.
constexpr size_t MAX_DIGITS = 400;
decimal          as_decimal(const std::string & number);

// -1, 0 or 1: a is less than, equal to or greater than b.
int32_t compare(const decimal & a, const decimal & b);

// Whether a is a multiple of b (b != 0). Throws std::invalid_argument if b has too many digits.
bool divides(const decimal & b, const decimal & a);

struct number_limits {
    struct bound {
        decimal value;
        bool    exclusive = false;
    };
    std::optional<bound> low = {}, high = {};
    std::vector<decimal> divisors = {};
    bool                 integer  = false;   // no fraction
};

// Accepts such numbers without an exponent, with up to 16 digits before and after the point, or more if a bound has
// more; 0 has no sign. Throws automaton_size_error; throws std::invalid_argument for a divisor whose digits form a
// number above 1,000.
automaton numbers(const number_limits & limits);

}   // namespace dflash
