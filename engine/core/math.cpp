// SPDX-License-Identifier: MIT

// Only IEEE +, -, *, / and operations on bits, each of which has one correct result. Values and
// what would be lost in rounding them are carried as sums of two doubles (Dekker, Numer. Math. 18,
// 1971; Muller et al., Handbook of Floating-Point Arithmetic, chapters 4 and 11). Arguments are
// reduced by tables (Tang, ACM TOMS 15, 1989, and 16, 1990), which the compiler computes.
#include "core/math.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cfloat>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace tt::math {
namespace {

// Wider intermediate results or other laws of algebra would make other bits; so would contraction
// to fused operations, which a program cannot see: it has to be compiled with -ffp-contract=off.
static_assert(FLT_EVAL_METHOD == 0 && std::numeric_limits<double>::is_iec559);
#ifdef __FAST_MATH__
#error "the engine must not be compiled with -ffast-math"
#endif

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

constexpr std::uint64_t bits(double x) { return std::bit_cast<std::uint64_t>(x); }
constexpr double from_bits(std::uint64_t x) { return std::bit_cast<double>(x); }

/// x without its last `count` bits, so that products with short factors are exact.
constexpr double shorten(double x, int count) { return from_bits(bits(x) >> count << count); }

/// 2^n for a normal result.
constexpr double power_of_two(std::int64_t n) {
  return from_bits(static_cast<std::uint64_t>(n + 1023) << 52);
}

/// The unevaluated sum of two doubles, of which the second is below the first's last bit.
struct Pair {
  double high = 0;
  double low = 0;
};

/// Exactly a + b if |a| >= |b| or a = 0.
constexpr Pair quick_sum(double a, double b) {
  const double sum = a + b;
  return {sum, b - (sum - a)};
}

/// Exactly a + b.
constexpr Pair sum_of(double a, double b) {
  const double sum = a + b;
  const double b_part = sum - a;
  return {sum, (a - (sum - b_part)) + (b - b_part)};
}

/// a * b but for 2^-103 of it. (Dekker splits by a multiplication, and is exact; cutting bits off
/// is faster, cannot overflow, and leaves one bit too many in the lower halves' product.)
constexpr Pair product_of(double a, double b) {
  const double product = a * b;
  const double a_high = shorten(a, 27);
  const double b_high = shorten(b, 27);
  const double a_low = a - a_high;
  const double b_low = b - b_high;
  return {product, a_high * b_high - product + a_high * b_low + a_low * b_high + a_low * b_low};
}

constexpr Pair operator-(Pair a) { return {-a.high, -a.low}; }
constexpr Pair operator+(Pair a, Pair b) {
  const Pair sum = sum_of(a.high, b.high);
  return quick_sum(sum.high, sum.low + (a.low + b.low));
}
constexpr Pair operator*(Pair a, Pair b) {
  const Pair product = product_of(a.high, b.high);
  return quick_sum(product.high, product.low + (a.high * b.low + a.low * b.high));
}
constexpr Pair operator/(Pair a, double b) {
  const double quotient = a.high / b;
  const Pair back = product_of(quotient, b);
  return quick_sum(quotient, (a.high - back.high - back.low + a.low) / b);
}

// Series for the tables: slow, and exact to about 2^-100.

constexpr Pair series_log(double x) {  // 2 artanh((x - 1) / (x + 1)), x near 1
  const Pair z = Pair{x - 1} / (x + 1);
  Pair power = z;
  Pair sum;
  for (double n = 1; n < 80; n += 2) {
    sum = sum + power / n;
    power = power * z * z;
  }
  return sum + sum;
}

constexpr Pair series_exp(Pair x) {
  Pair term{1};
  Pair sum{1};
  for (double n = 1; n < 30; ++n) {
    term = term * x / n;
    sum = sum + term;
  }
  return sum;
}

/// x in two parts, the first without its last `count` bits: its products with whole numbers of as
/// many bits are exact.
constexpr Pair cut(Pair x, int count) {
  const double high = shorten(x.high, count);
  return {high, x.high - high + x.low};
}

constexpr Pair ln2 = -series_log(0.5);

/// For log: 128 intervals of the numbers from about 0.7 to 1.4, of which one has 1 in its middle:
/// there, the logarithm must be exact relative to itself, so the reduction must not subtract.
struct LogTable {
  static constexpr int shift = 52 - 7;
  static constexpr std::uint64_t one = 73;  // the interval around 1
  static constexpr std::uint64_t start =
      bits(1) - (one << shift) - (std::uint64_t{1} << (shift - 1));
  static constexpr double grid = 0x1p-42;  // its multiples below 2^11 are doubles
  static constexpr Pair ln2_parts = cut(ln2, 11);

  struct Row {
    double inverse;  // about the inverse of the interval's middle; 11 bits
    double high;     // minus its logarithm: a multiple of `grid`, and the rest
    double low;
  };
  std::array<Row, 128> rows{};

  constexpr LogTable() {
    for (std::uint64_t i = 0; i < rows.size(); ++i) {
      const double middle = from_bits(start + (i << shift) + (std::uint64_t{1} << (shift - 1)));
      const double inverse = static_cast<double>(static_cast<int>(1024 / middle + 0.5)) / 1024;
      const Pair log = -series_log(inverse);
      const double high = static_cast<double>(static_cast<std::int64_t>(log.high / grid)) * grid;
      rows[i] = {inverse, high, log.high - high + log.low};
    }
  }
};
constexpr LogTable log_table;
static_assert(log_table.rows[LogTable::one].inverse == 1);

/// log(high + low) + exponent * log 2 for a normal, finite and positive `high`, within 2^-69 of it.
inline Pair log_of(double high, double low, std::int64_t exponent = 0) {
  const std::uint64_t from_start = bits(high) - LogTable::start;
  const std::int64_t n = static_cast<std::int64_t>(from_start) >> 52;
  const auto& row = log_table.rows[from_start >> LogTable::shift & 127];
  const double x = from_bits(bits(high) - (static_cast<std::uint64_t>(n) << 52));
  // r = (x + low) * inverse - 1: exact but for the share of `low`, and around 1 altogether.
  const double x_high = shorten(x, 21);
  Pair r = sum_of(x_high * row.inverse - 1, (x - x_high) * row.inverse);
  if (low != 0) {
    low *= power_of_two(-n / 2) * power_of_two(n / 2 - n);
    r = sum_of(r.high, r.low + low * row.inverse);
  }
  // log(1 + r) = r - r^2 / 2 + r^3 / 3 - ..., |r| < 2^-7.8: only r and its square need two doubles.
  const double y = r.high;
  const Pair square = product_of(y, y);
  const double s = square.high;
  const double rest =
      y * s * ((1. / 3 - y / 4) + s * ((1. / 5 - y / 6) + s * ((1. / 7 - y / 8) + s / 9)));
  const auto whole = static_cast<double>(n + exponent);
  const Pair sum = quick_sum(whole * LogTable::ln2_parts.high + row.high, y);
  const Pair less = quick_sum(sum.high, -0.5 * s);
  return quick_sum(less.high, less.low + (sum.low + ((r.low - y * r.low - 0.5 * square.low + rest) +
                                                     (whole * LogTable::ln2_parts.low + row.low))));
}

/// Also for numbers that are not normal.
inline Pair log_of(double x) {
  const bool tiny = x < DBL_MIN;
  return log_of(tiny ? x * 0x1p54 : x, 0, tiny ? -54 : 0);
}

/// For exp: 2^(i / 64).
struct ExpTable {
  static constexpr Pair step = cut(ln2 / 64, 17);
  std::array<Pair, 64> powers{};
  constexpr ExpTable() {
    for (std::size_t i = 0; i < powers.size(); ++i)
      powers[i] = series_exp(ln2 * Pair{static_cast<double>(i)} / 64);
  }
};
constexpr ExpTable exp_table;

/// e^x = 2^(n / 64) (1 + r).
struct Reduced {
  std::int64_t n;
  Pair r;

  /// |x| < 760
  explicit Reduced(Pair x) {
    constexpr double round = 0x1.8p52;  // adding and subtracting it rounds to whole numbers
    const double whole = (x.high * (64 / ln2.high) + round) - round;
    n = static_cast<std::int64_t>(whole);
    const Pair rest = sum_of(x.high - whole * ExpTable::step.high,  // exact
                             x.low - whole * ExpTable::step.low);
    // r = e^rest - 1, |rest| < 2^-7.5
    const double y = rest.high;
    const double s = y * y;
    r = {y,
         rest.low + s * ((1. / 2 + y / 6) + s * ((1. / 24 + y / 120) + s * (1. / 720 + y / 5040)))};
  }
  /// 2^(n / 64 - exponent()) (1 + r)
  [[nodiscard]] Pair fraction() const {
    const Pair power = exp_table.powers[static_cast<std::uint64_t>(n) % 64];
    const Pair product = product_of(power.high, r.high);
    const Pair sum = quick_sum(power.high, product.high);
    return quick_sum(
        sum.high, sum.low + (product.low + (power.low + power.low * r.high) + power.high * r.low));
  }
  [[nodiscard]] std::int64_t exponent() const { return n >> 6; }
};

inline double exp_of(Pair x) {
  if (!(x.high < 710)) return x.high + infinity;  // NaN stays
  if (x.high < -746) return 0;
  const Reduced reduced(x);
  const Pair value = reduced.fraction();
  const std::int64_t n = reduced.exponent();
  if (n <= -1022) {
    // Perhaps a subnormal result: it is rounded where its last bit will be, and only once.
    const double to_last_bit = power_of_two(n + 1022);
    if (value.high * to_last_bit < 1) {
      const Pair sum = quick_sum(1, value.high * to_last_bit);
      return (sum.high + (sum.low + value.low * to_last_bit) - 1) * 0x1p-1022;
    }
  }
  return (value.high + value.low) * power_of_two(n / 2) * power_of_two(n - n / 2);
}

}  // namespace

double exp(double x) { return exp_of({x}); }

double expm1(double x) {
  if (x > -0x1p-60 && x < 0x1p-60) return x;
  if (!(x < 100)) return exp(x);
  if (x < -100) return -1;
  const Reduced reduced({x});
  if (reduced.n == 0) return reduced.r.high + reduced.r.low;  // 1 would hide the last bits
  const double scale = power_of_two(reduced.exponent());
  const Pair value = reduced.fraction();
  const Pair sum = sum_of(value.high * scale, -1);
  return sum.high + (sum.low + value.low * scale);
}

double log(double x) {
  if (!(x > 0)) return x == 0 ? -infinity : nan;
  if (x == infinity) return x;
  const Pair value = log_of(x);
  return value.high + value.low;
}

double log1p(double x) {
  if (x > -0x1p-60 && x < 0x1p-60) return x;
  if (!(x > -1)) return x == -1 ? -infinity : nan;
  if (x == infinity) return x;
  const Pair sum = sum_of(1, x);
  const Pair value = log_of(sum.high, sum.low);
  return value.high + value.low;
}

double pow(double x, double y) {
  if (y == 0 || x == 1) return 1;
  if (!(x >= 0) || y != y) return nan;
  if (x == 0 || x == infinity) return (x == 0) == (y > 0) ? 0 : infinity;
  y = std::clamp(y, -0x1p66, 0x1p66);  // more than enough for any x but 1
  const Pair log = log_of(x);
  const Pair product = product_of(y, log.high);
  return exp_of(quick_sum(product.high, product.low + y * log.low));
}

double log_gamma(double x) {
  if (!(x > 0)) return x == 0 ? infinity : nan;
  if (x == 1 || x == 2) return 0;
  if (x < 0x1p-60) return -log(x);
  if (x >= 0x1p900) return x * (log(x) - 1);
  // gamma(x) = gamma(x + n) / (x (x + 1) ... (x + n - 1)), up to where Stirling's series is good.
  Pair divisor{1};
  double n = 0;
  for (; x + n < 16; ++n) divisor = divisor * sum_of(x, n);
  const Pair z = sum_of(x, n);
  // Bernoulli's numbers B(2k) / (2k (2k - 1)), the last one first.
  constexpr double terms[] = {-3617. / 122400, 1. / 156,  -691. / 360360, 1. / 1188,
                              -1. / 1680,      1. / 1260, -1. / 360,      1. / 12};
  double series = 0;
  for (const double term : terms) series = series / (z.high * z.high) + term;
  constexpr Pair half_log_two_pi{0x1.d67f1c864beb5p-1, -0x1.65b5a1b7ff5dfp-55};
  const Pair value = (z + Pair{-0.5}) * log_of(z.high, z.low) + -z + half_log_two_pi +
                     Pair{series / z.high} + -log_of(divisor.high, divisor.low);
  return value.high;
}

}  // namespace tt::math
