// SPDX-License-Identifier: MIT

// The elementary functions: right to the last bit in nearly all cases, and the same everywhere.
#include "core/math.hpp"

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <limits>

#include "check.hpp"
#include "core/rng.hpp"

using namespace tt;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
constexpr double tiniest = std::numeric_limits<double>::denorm_min();

struct Arguments {
  double x;
  double y;  // of pow
};

double within(Rng& rng, double from, double to) { return from + (to - from) * rng.uniform(); }

/// A number with any exponent in [from, to).
double spread(Rng& rng, int from, int to) {
  const double fraction = 1 + rng.uniform();
  return std::ldexp(fraction, from + static_cast<int>(rng.below(static_cast<unsigned>(to - from))));
}

double either(Rng& rng, double x) { return rng.next() % 2 == 0 ? x : -x; }

// Per function: itself, the C library's in double and in long double, and arguments of all sorts.
// (Without elementary functions, or these would differ between machines.)
struct Exp {
  static double ours(Arguments a) { return math::exp(a.x); }
  template <typename T>
  static T theirs(Arguments a) {
    return std::exp(static_cast<T>(a.x));
  }
  static Arguments draw(Rng& rng, unsigned i) {
    if (i % 3 == 0) return {within(rng, -745.2, 709.8), 0};
    return {i % 3 == 1 ? within(rng, -2, 2) : either(rng, spread(rng, -60, 9)), 0};
  }
};

struct Expm1 {
  static double ours(Arguments a) { return math::expm1(a.x); }
  template <typename T>
  static T theirs(Arguments a) {
    return std::expm1(static_cast<T>(a.x));
  }
  static Arguments draw(Rng& rng, unsigned i) {
    if (i % 3 == 0) return {within(rng, -40, 709.8), 0};
    return {i % 3 == 1 ? within(rng, -0.1, 0.1) : either(rng, spread(rng, -80, 9)), 0};
  }
};

struct Log {
  static double ours(Arguments a) { return math::log(a.x); }
  template <typename T>
  static T theirs(Arguments a) {
    return std::log(static_cast<T>(a.x));
  }
  static Arguments draw(Rng& rng, unsigned i) {
    if (i % 3 == 0) return {spread(rng, -1074, 1024), 0};
    return {i % 3 == 1 ? within(rng, 0.5, 2) : 1 + either(rng, spread(rng, -50, -5)), 0};
  }
};

struct Log1p {
  static double ours(Arguments a) { return math::log1p(a.x); }
  template <typename T>
  static T theirs(Arguments a) {
    return std::log1p(static_cast<T>(a.x));
  }
  static Arguments draw(Rng& rng, unsigned i) {
    if (i % 3 == 0) return {spread(rng, -80, 1024), 0};
    return {i % 3 == 1 ? -rng.uniform() : either(rng, spread(rng, -80, -1)), 0};
  }
};

struct Pow {
  static double ours(Arguments a) { return math::pow(a.x, a.y); }
  template <typename T>
  static T theirs(Arguments a) {
    return std::pow(static_cast<T>(a.x), static_cast<T>(a.y));
  }
  static Arguments draw(Rng& rng, unsigned i) {
    if (i % 3 == 0) return {rng.uniform(), within(rng, -3, 3)};
    if (i % 3 == 1) return {spread(rng, -1074, 1024), either(rng, spread(rng, -20, 1))};
    const double away = spread(rng, -40, -6);
    return {1 + either(rng, away), either(rng, 700 * rng.uniform() / away)};
  }
};

struct LogGamma {
  static double ours(Arguments a) { return math::log_gamma(a.x); }
  template <typename T>
  static T theirs(Arguments a) {
    return std::lgamma(static_cast<T>(a.x));
  }
  static Arguments draw(Rng& rng, unsigned i) {
    if (i % 3 == 0) return {spread(rng, -1074, 1014), 0};
    return {i % 3 == 1 ? within(rng, 0, 20) : static_cast<double>(1 + rng.below(2000)), 0};
  }
};

/// How many doubles apart; both of one sign.
std::uint64_t distance(double a, double b) {
  const auto p = std::bit_cast<std::uint64_t>(a);
  const auto q = std::bit_cast<std::uint64_t>(b);
  return p > q ? p - q : q - p;
}

/// The error in units of the last place of the double nearest to `exact`.
long double error_of(double found, long double exact) {
  const auto nearest = static_cast<double>(exact);
  if (std::isinf(nearest) || nearest == 0) return found == nearest ? 0 : infinity;
  const int last = std::max(std::ilogb(nearest), DBL_MIN_EXP - 1) - (DBL_MANT_DIG - 1);
  return std::abs(std::ldexp(static_cast<long double>(found) - exact, -last));
}

template <typename Function>
void check_accuracy() {
  Rng rng{1};
  std::uint64_t apart = 0;
  long double error = 0;
  for (unsigned i = 0; i < 30000; ++i) {
    const Arguments a = Function::draw(rng, i);
    const double found = Function::ours(a);
    apart = std::max(apart, distance(found, Function::template theirs<double>(a)));
    if (LDBL_MANT_DIG >= 64)
      error = std::max(error, error_of(found, Function::template theirs<long double>(a)));
  }
  CHECK(apart <= 1);
  CHECK(error < 0.51L);
}

template <typename Function>
std::uint64_t fingerprint() {
  Rng rng{2};
  std::uint64_t hash = 1;
  for (unsigned i = 0; i < 100000; ++i)
    hash = mix64(hash ^ std::bit_cast<std::uint64_t>(Function::ours(Function::draw(rng, i))));
  return hash;
}

/// The function never falls over 2000 neighbouring doubles around x.
template <typename Function>
bool never_falls(double x) {
  for (int i = 0; i < 1000; ++i) x = std::nextafter(x, -infinity);
  for (int i = 0; i < 2000; ++i) {
    const double next = std::nextafter(x, infinity);
    if (Function::ours({next, 0.7}) < Function::ours({x, 0.7})) return false;
    x = next;
  }
  return true;
}

}  // namespace

TEST("elementary functions are within 0.51 units of the last place") {
  check_accuracy<Exp>();
  check_accuracy<Expm1>();
  check_accuracy<Log>();
  check_accuracy<Log1p>();
  check_accuracy<Pow>();
}

TEST("log_gamma has 14 digits") {
  Rng rng{1};
  for (unsigned i = 0; i < 30000; ++i) {
    const Arguments a = LogGamma::draw(rng, i);
    const double expected = LogGamma::theirs<double>(a);
    CHECK_NEAR(LogGamma::ours(a), expected, 1e-14 * std::abs(expected) + 1e-17);
  }
  CHECK_EQ(math::log_gamma(1), 0.0);
  CHECK_EQ(math::log_gamma(2), 0.0);
  CHECK_EQ(math::log_gamma(0), infinity);
  CHECK_EQ(math::log_gamma(infinity), infinity);
  CHECK_EQ(math::log_gamma(DBL_MAX), infinity);
  CHECK(std::isnan(math::log_gamma(-0.5)) && std::isnan(math::log_gamma(not_a_number)));
}

TEST("elementary functions have the same bits on every processor") {
  // Found so on x86-64 without and with FMA, and on aarch64.
  CHECK_EQ(fingerprint<Exp>(), 0x92de4c6db4e8d3f0u);
  CHECK_EQ(fingerprint<Expm1>(), 0xed220429b3e229a3u);
  CHECK_EQ(fingerprint<Log>(), 0x8729695962ac76c0u);
  CHECK_EQ(fingerprint<Log1p>(), 0x7ccaa64cbc59abf4u);
  CHECK_EQ(fingerprint<Pow>(), 0x71cacd4bc99a38c4u);
  CHECK_EQ(fingerprint<LogGamma>(), 0xacbd37e7f673f780u);
}

TEST("exp and expm1 at the edges") {
  CHECK_EQ(math::exp(0), 1.0);
  CHECK_EQ(math::exp(-0.0), 1.0);
  CHECK_EQ(math::exp(1), 0x1.5bf0a8b145769p+1);
  CHECK_EQ(math::exp(infinity), infinity);
  CHECK_EQ(math::exp(-infinity), 0.0);
  CHECK_EQ(math::exp(DBL_MAX), infinity);
  CHECK_EQ(math::exp(-DBL_MAX), 0.0);
  CHECK_EQ(math::exp(0x1.62e42fefa39efp+9), 0x1.fffffffffff2ap+1023);  // the largest that is finite
  CHECK_EQ(math::exp(0x1.62e42fefa39fp+9), infinity);
  CHECK_EQ(math::exp(-0x1.74910d52d3051p+9), tiniest);
  CHECK_EQ(math::exp(-0x1.74910d52d3052p+9), 0.0);
  CHECK_EQ(math::expm1(infinity), infinity);
  CHECK_EQ(math::expm1(-infinity), -1.0);
  CHECK_EQ(math::expm1(tiniest), tiniest);
  CHECK(math::expm1(-0.0) == 0 && std::signbit(math::expm1(-0.0)));
  CHECK(std::isnan(math::exp(not_a_number)) && std::isnan(math::expm1(not_a_number)));
}

TEST("log and log1p at the edges") {
  CHECK_EQ(math::log(1), 0.0);
  CHECK_EQ(math::log(0), -infinity);
  CHECK_EQ(math::log(-0.0), -infinity);
  CHECK_EQ(math::log(infinity), infinity);
  CHECK_EQ(math::log(tiniest), -0x1.74385446d71c3p+9);
  CHECK_EQ(math::log(DBL_MAX), 0x1.62e42fefa39efp+9);
  CHECK_EQ(math::log1p(-1), -infinity);
  CHECK_EQ(math::log1p(infinity), infinity);
  CHECK_EQ(math::log1p(tiniest), tiniest);
  CHECK_EQ(math::log1p(DBL_MAX), 0x1.62e42fefa39efp+9);
  CHECK(math::log1p(-0.0) == 0 && std::signbit(math::log1p(-0.0)));
  CHECK(std::isnan(math::log(-1)) && std::isnan(math::log(-infinity)));
  CHECK(std::isnan(math::log1p(-1.5)) && std::isnan(math::log1p(-infinity)));
  CHECK(std::isnan(math::log(not_a_number)) && std::isnan(math::log1p(not_a_number)));
}

TEST("pow at the edges") {
  const double values[] = {0, tiniest, 0.5, 1, 1.5, 0x1p1000, infinity, not_a_number};
  for (const double x : values) {
    for (const double y : values) {
      for (const double power : {y, -y}) {
        const double expected = std::pow(x, power);
        const double found = math::pow(x, power);
        CHECK(found == expected || (std::isnan(found) && std::isnan(expected)));
      }
    }
  }
  for (double n = -1074; n < 1024; ++n)
    CHECK_EQ(math::pow(2, n), std::ldexp(1, static_cast<int>(n)));
  for (double n = 0; n < 16; ++n) CHECK_EQ(math::pow(n, 2), n * n);
  CHECK_EQ(math::pow(10, 15), 1e15);
  CHECK_EQ(math::pow(-0.0, 2), 0.0);
  CHECK(std::isnan(math::pow(-1, 2)));
}

TEST("elementary functions do not fall where their tables change rows") {
  // Between every two rows: the reduced argument is largest there.
  for (int i = 0; i < 128; ++i) {
    CHECK(never_falls<Exp>((i - 64.5) * 0x1.62e42fefa39efp-7));
    CHECK(never_falls<Expm1>((i - 64.5) * 0x1.62e42fefa39efp-7));
    CHECK(never_falls<Log>((i + 128.5) / 128));
    CHECK(never_falls<Log>((i + 128.5) / 256));
    CHECK(never_falls<Log1p>((i + 0.5) / 128));
    CHECK(never_falls<Pow>((i + 128.5) / 128));
  }
}
