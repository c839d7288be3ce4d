#include "schema/decimal.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <tuple>

namespace dflash {

namespace {

constexpr size_t  N_DIGITS    = 16;     // before and after the point
constexpr int64_t MAX_DIVISOR = 1000;   // one automaton state per remainder

// A divisor p / 10^d.
struct divisor {
    int64_t p;
    size_t  d;
};

divisor as_divisor(const decimal & value) {
    const std::string digits = value.whole + value.fraction;
    const size_t      first  = digits.find_first_not_of('0');
    if (first == std::string::npos || digits.size() - first > 9) {
        throw std::invalid_argument("has too many digits");
    }
    return { std::atoll(digits.c_str()), value.fraction.size() };
}

// A prefix of a number's text. It is compared with a bound by its digits alone, as if both had the same length so far.
struct prefix {
    enum class part { begin, sign, zero, whole, point, fraction };
    part                 at       = part::begin;
    bool                 negative = false;
    bool                 nonzero  = false;
    size_t               n_whole = 0, n_fraction = 0;
    int32_t              low = 0, high = 0;   // comparison with the bounds of the magnitude
    std::vector<int64_t> remainders = {};

    auto key() const { return std::tie(at, negative, nonzero, n_whole, n_fraction, low, high, remainders); }
    bool operator<(const prefix & other) const { return key() < other.key(); }
};

using optional_bound = std::optional<number_limits::bound>;

class number_machine {
  public:
    explicit number_machine(const number_limits & limits) : limits_(limits) {
        n_whole_ = n_fraction_ = N_DIGITS;
        for (const optional_bound * b : { &limits.low, &limits.high }) {
            if (*b) {
                n_whole_    = std::max(n_whole_, (*b)->value.whole.size() + 1);
                n_fraction_ = std::max(n_fraction_, (*b)->value.fraction.size() + 1);
            }
        }
        int64_t n_remainders = 1;
        for (const decimal & one : limits.divisors) {
            const divisor d = as_divisor(one);
            divisors_.push_back(d);
            n_remainders *= d.p;
            if (d.p > MAX_DIVISOR || n_remainders > MAX_DIVISOR) {
                throw std::invalid_argument("divides by too large a number for a grammar");
            }
        }
    }

    automaton build() const {
        std::map<prefix, int32_t> found;
        prefix                    begin;
        begin.remainders.assign(divisors_.size(), 0);
        std::vector<prefix> all = { begin };
        found[begin]            = 0;
        automaton out;
        for (size_t k = 0; k < all.size(); ++k) {
            const prefix     from = all[k];
            automaton::state s    = { accepts(from) };
            for (const char c : std::string("-.0123456789")) {
                automaton_budget::spend(10);
                prefix to = from;
                if (!read(to, c)) {
                    continue;
                }
                const auto [place, added] = found.emplace(to, int32_t(all.size()));
                if (added) {
                    all.push_back(to);
                    if (all.size() > 10 * MAX_STATES) {
                        throw automaton_size_error();
                    }
                }
                s.edges.push_back({ uint32_t(c), uint32_t(c), place->second });
            }
            out.states.push_back(std::move(s));
        }
        return minimal(out);
    }

  private:
    // Bounds of the magnitude: a lower bound of a negative number is an upper bound of its magnitude.
    const optional_bound & low_of(bool negative) const { return negative ? limits_.high : limits_.low; }
    const optional_bound & high_of(bool negative) const { return negative ? limits_.low : limits_.high; }

    // The comparison with a bound after one more digit.
    static int32_t compared(int32_t before, const std::string & digits, size_t at, char c) {
        const char other = at < digits.size() ? digits[at] : '0';
        return before != 0 ? before : (c > other) - (c < other);
    }

    void add_whole(prefix & p, char c) const {
        for (const bool is_low : { true, false }) {
            const optional_bound & b   = is_low ? low_of(p.negative) : high_of(p.negative);
            int32_t &              cmp = is_low ? p.low : p.high;
            if (b && p.n_whole < b->value.whole.size()) {
                cmp = compared(cmp, b->value.whole, p.n_whole, c);
            } else if (b) {
                cmp = 1;   // more digits than the bound has
            }
        }
        ++p.n_whole;
    }

    // A number with fewer digits than a bound is less.
    void end_whole(prefix & p) const {
        const auto end = [&](const optional_bound & b, int32_t & cmp) {
            if (b && p.n_whole < b->value.whole.size()) {
                cmp = -1;
            }
        };
        end(low_of(p.negative), p.low);
        end(high_of(p.negative), p.high);
        p.n_whole = 0;   // no longer relevant; fewer distinct states
    }

    bool read(prefix & p, char c) const {
        using part = prefix::part;
        if (c == '-') {
            const bool first = p.at == part::begin;
            p.at             = part::sign;
            p.negative       = true;
            return first;
        }
        if (c == '.') {
            const bool fits = !limits_.integer && (p.at == part::zero || p.at == part::whole);
            end_whole(p);
            p.at = part::point;
            return fits;
        }
        p.nonzero |= c != '0';
        if (p.at == part::begin || p.at == part::sign) {
            p.at = c == '0' ? part::zero : part::whole;
            if (c != '0') {
                add_whole(p, c);
            }
        } else if (p.at == part::whole) {
            if (p.n_whole >= n_whole_) {
                return false;
            }
            add_whole(p, c);
        } else if (p.at == part::point || p.at == part::fraction) {
            if (p.n_fraction >= n_fraction_) {
                return false;
            }
            p.at                      = part::fraction;
            const optional_bound &low = low_of(p.negative), &high = high_of(p.negative);
            p.low  = low ? compared(p.low, low->value.fraction, p.n_fraction, c) : 0;
            p.high = high ? compared(p.high, high->value.fraction, p.n_fraction, c) : 0;
            ++p.n_fraction;
        } else {
            return false;   // no digit may follow a leading 0
        }
        for (size_t i = 0; i < divisors_.size(); ++i) {
            const bool behind = p.n_fraction > divisors_[i].d;
            if (behind && c != '0') {
                return false;   // multiples of the divisor have no digit here
            }
            p.remainders[i] = behind ? p.remainders[i] : (p.remainders[i] * 10 + (c - '0')) % divisors_[i].p;
        }
        return true;
    }

    bool accepts(prefix p) const {
        using part = prefix::part;
        if (p.at != part::zero && p.at != part::whole && p.at != part::fraction) {
            return false;
        }
        if (p.negative && !p.nonzero) {
            return false;
        }
        if (p.at != part::fraction) {
            end_whole(p);
        }
        const bool is_low  = fits(low_of(p.negative), p, p.low, false),
                   is_high = fits(high_of(p.negative), p, p.high, true);
        if (!is_low || !is_high) {
            return false;
        }
        for (size_t i = 0; i < divisors_.size(); ++i) {
            int64_t rest = p.remainders[i];
            for (size_t k = p.n_fraction; k < divisors_[i].d; ++k) {
                rest = rest * 10 % divisors_[i].p;
            }
            if (rest != 0) {
                return false;
            }
        }
        return true;
    }

    // A bound of the other sign accepts all numbers of this sign or none. A bound of 0 works for both signs.
    static bool fits(const optional_bound & b, const prefix & p, int32_t cmp, bool is_high) {
        if (!b) {
            return true;
        }
        if (b->value.is_zero()) {
            const int32_t magnitude = p.nonzero ? 1 : 0;
            return magnitude == 0 ? !b->exclusive : !is_high;
        }
        if (b->value.negative != p.negative) {
            return !is_high;
        }
        if (cmp == 0 && p.n_fraction < b->value.fraction.size()) {
            cmp = -1;   // more digits of the bound follow, and the last is not 0
        }
        return cmp == 0 ? !b->exclusive : is_high ? cmp < 0 : cmp > 0;
    }

    const number_limits & limits_;
    std::vector<divisor>  divisors_;
    size_t                n_whole_, n_fraction_;
};

}   // namespace

decimal as_decimal(const std::string & number) {
    decimal      out;
    const size_t e      = std::min(number.find_first_of("eE"), number.size());
    std::string  digits = number.substr(0, e);
    int64_t      shift  = e < number.size() ? std::atoll(number.c_str() + e + 1) : 0;
    if (!digits.empty() && digits[0] == '-') {
        out.negative = true;
        digits.erase(0, 1);
    }
    const size_t point = digits.find('.');
    if (point != std::string::npos) {
        shift -= int64_t(digits.size() - point - 1);
        digits.erase(point, 1);
    }
    digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size()));
    while (!digits.empty() && digits.back() == '0') {
        digits.pop_back();
        ++shift;
    }
    if (digits.empty()) {
        return {};
    }
    if (std::llabs(shift) + int64_t(digits.size()) > int64_t(MAX_DIGITS)) {
        throw std::invalid_argument("has too many digits");
    }
    if (shift >= 0) {
        out.whole = digits + std::string(size_t(shift), '0');
    } else if (size_t(-shift) < digits.size()) {
        out.whole    = digits.substr(0, digits.size() - size_t(-shift));
        out.fraction = digits.substr(out.whole.size());
    } else {
        out.fraction = std::string(size_t(-shift) - digits.size(), '0') + digits;
    }
    return out;
}

int32_t compare(const decimal & a, const decimal & b) {
    if (a.negative != b.negative) {
        return a.negative ? -1 : 1;
    }
    const int32_t sign = a.negative ? -1 : 1;
    if (a.whole.size() != b.whole.size()) {
        return a.whole.size() < b.whole.size() ? -sign : sign;
    }
    const int32_t whole = a.whole.compare(b.whole), order = whole != 0 ? whole : a.fraction.compare(b.fraction);
    return order == 0 ? 0 : order < 0 ? -sign : sign;
}

bool divides(const decimal & b, const decimal & a) {
    const divisor d    = as_divisor(b);
    int64_t       rest = 0;
    for (const char c : a.whole) {
        rest = (rest * 10 + (c - '0')) % d.p;
    }
    for (size_t k = 0; k < std::max(d.d, a.fraction.size()); ++k) {
        const char c = k < a.fraction.size() ? a.fraction[k] : '0';
        if (k >= d.d) {
            return false;   // the last digit of a fraction is not 0
        }
        rest = (rest * 10 + (c - '0')) % d.p;
    }
    return rest == 0;
}

automaton numbers(const number_limits & limits) { return number_machine(limits).build(); }

}   // namespace dflash
