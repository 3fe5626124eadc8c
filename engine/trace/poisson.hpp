// SPDX-License-Identifier: MIT

// Poisson draws: the same numbers on every platform and standard library.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/math.hpp"
#include "core/rng.hpp"

namespace tt::trace {

/// Draws with one mean; what depends on the mean alone is computed once.
class Poisson {
 public:
  explicit Poisson(double mean) : mean_(mean) {
    if (mean < product_limit) {
      at_zero_ = math::exp(-mean);
      return;
    }
    log_mean_ = math::log(mean);
    b_ = 0.931 + 2.53 * std::sqrt(mean);
    a_ = -0.059 + 0.02483 * b_;
    log_inverse_alpha_ = math::log(1.1239 + 1.1328 / (b_ - 3.4));
    squeeze_ = 0.9277 - 3.6224 / (b_ - 2);
  }

  [[nodiscard]] std::uint64_t draw(Rng& rng) const {
    if (mean_ < product_limit) {
      std::uint64_t count = 0;
      for (double product = rng.uniform(); product > at_zero_; product *= rng.uniform()) ++count;
      return count;
    }
    // Hörmann, "The transformed rejection method for generating Poisson random variables",
    // Insurance: Mathematics and Economics 12 (1993), algorithm PTRS.
    for (;;) {
      const double u = rng.uniform() - 0.5;
      const double v = rng.uniform();
      const double us = 0.5 - std::abs(u);
      const double k = std::floor((2 * a_ / us + b_) * u + mean_ + 0.43);
      if (us >= 0.07 && v <= squeeze_) return static_cast<std::uint64_t>(k);
      if (k < 0 || (us < 0.013 && v > us)) continue;
      if (math::log(v) + log_inverse_alpha_ - math::log(a_ / (us * us) + b_) <=
          k * log_mean_ - mean_ - math::log_gamma(k + 1))
        return static_cast<std::uint64_t>(k);
    }
  }

 private:
  static constexpr double product_limit = 10;  // below, multiplying uniform numbers is faster
  double mean_;
  double at_zero_ = 0;
  double log_mean_ = 0, a_ = 0, b_ = 0, log_inverse_alpha_ = 0, squeeze_ = 0;
};

}  // namespace tt::trace
