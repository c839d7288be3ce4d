// Bounds and divisors of numbers, as automata over the numbers' texts. Decimal, since what a schema says is decimal: no
// binary fraction is 0.1.

#pragma once

#include "schema/automaton.h"

#include <optional>
#include <string>
#include <vector>

namespace dflash {

struct decimal {
    bool        negative = false;
    std::string whole    = "";   // digits, without zeros in front
    std::string fraction = "";   // digits, without zeros behind

    bool is_zero() const { return whole.empty() && fraction.empty(); }
};

// Of a number as JSON writes it. Throws std::invalid_argument if it has more than MAX_DIGITS.
constexpr size_t MAX_DIGITS = 400;
decimal          as_decimal(const std::string & number);

// -1, 0 or 1: a is below, equal to, above b.
int32_t compare(const decimal & a, const decimal & b);

// Whether b, not 0, divides a. Throws std::invalid_argument if b has too many digits.
bool divides(const decimal & b, const decimal & a);

struct number_limits {
    struct bound {
        decimal value;
        bool    exclusive = false;
    };
    std::optional<bound> low = {}, high = {};
    std::vector<decimal> divisors = {};
    bool                 integer  = false;   // digits alone: no fraction
};

// The texts of such numbers without an exponent, with up to 16 digits before the point and 16 behind it, more where a
// bound has more; 0 has no sign. Throws automaton_size_error, std::invalid_argument for divisors above 1,000 with all
// their digits.
automaton numbers(const number_limits & limits);

}   // namespace dflash
