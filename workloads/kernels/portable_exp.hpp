// SPDX-License-Identifier: MIT

// e^x from additions and multiplications alone, so that it has the same bits on every machine: the
// C library's may differ in the last one, and learned weights decide what is accessed next.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace tt::kernels {

/// Relative error below 2^-50; arguments beyond +-700 count as +-700.
[[nodiscard]] inline double portable_exp(double x) {
  x = std::clamp(x, -700.0, 700.0);
  // x = n ln 2 + r with |r| <= ln 2 / 2; adding and subtracting 1.5 * 2^52 rounds to whole numbers.
  constexpr double shift = 0x1.8p52;
  const double n = (x * 0x1.71547652b82fep+0 + shift) - shift;
  const double r = (x - n * 0x1.62e42feep-1) - n * 0x1.a39ef35793c76p-33;
  // Taylor's series to r^13: the next term is below 2^-57.
  double sum = 1;
  for (double k = 13; k >= 1; k -= 1) sum = 1 + sum * (r / k);
  return sum * std::bit_cast<double>((static_cast<std::int64_t>(n) + 1023) << 52);
}

}  // namespace tt::kernels
