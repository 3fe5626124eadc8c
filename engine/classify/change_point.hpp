// SPDX-License-Identifier: MIT

// ChangePoint: tells when a signal has risen for good (ARMS, 2025; a one-sided CUSUM test: Page,
// Biometrika, 1954).
#pragma once

#include <algorithm>
#include <cmath>
#include <utility>

namespace tt::classify {

class ChangePoint {
 public:
  struct Options {
    double mean_weight = 0.1;       // of the latest value in the mean
    double deviation_weight = 0.2;  // of its square distance from the mean in the deviation
    double slack = 0.5;             // deviations that a value may exceed the mean by
    double limit = 6;               // deviations that the sum of what exceeds may reach
    double least = 0;               // the signal has not risen unless it exceeds this
    double unit = 1;                // of the signal, see add()
  };
  explicit ChangePoint(const Options& options) : options_(options) {}

  /// The next value. Returns whether the signal has risen; the sum begins anew then.
  ///
  /// The published code updates the deviation with sqrt(0.8 s + 0.2 d^2) where 0.8 s^2 would be its
  /// running average. Its s does not fall below 0.8 of the unit that the signal is measured in, so
  /// that this unit is a part of the test.
  bool add(double value) {
    if (!std::exchange(begun_, true)) mean_ = value;
    mean_ += options_.mean_weight * (value - mean_);
    const double off = (value - mean_) / options_.unit;
    const double kept = 1 - options_.deviation_weight;
    deviation_ = std::sqrt(kept * deviation_ + options_.deviation_weight * off * off);
    sum_ = std::max(0.0, sum_ + off - options_.slack * deviation_);
    if (sum_ <= options_.limit * deviation_ || value <= options_.least) return false;
    sum_ = 0;
    return true;
  }
  /// Nothing speaks for a rise at present.
  [[nodiscard]] bool calm() const { return sum_ <= 0; }

 private:
  Options options_;
  bool begun_ = false;
  double mean_ = 0;
  double deviation_ = 0, sum_ = 0;  // in units
};

}  // namespace tt::classify
