// Allowances: how much may be done per pass or per second, where the amount may be a fraction.
//
// A limit of 32 pages per pass on a miniature of scale 64 is half a page per pass. Rounding it
// would halve or double the limit, so the remainder is carried.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/types.hpp"

namespace tt::migrate {

/// A number of units per pass. What a pass leaves unused is lost, except for the fraction of a
/// unit.
class PerPass {
 public:
  explicit PerPass(double units) : units_(units) {}
  /// Starts a pass: whole units that it may use.
  std::uint64_t next() {
    carry_ += units_;
    const double whole = std::floor(carry_);
    carry_ -= whole;
    return static_cast<std::uint64_t>(whole);
  }

 private:
  double units_;
  double carry_ = 0;
};

/// A number of units per second, with at most `burst` saved up (never less than one unit).
class RateLimiter {
 public:
  RateLimiter(double units_per_second, double burst)
      : rate_(units_per_second), burst_(std::max(1.0, burst)) {}

  /// Whole units that may be used now.
  std::uint64_t available(Nanos now) {
    if (now > last_) {
      saved_ = std::min(burst_, saved_ + rate_ * seconds(now - last_));
      last_ = now;
    }
    return static_cast<std::uint64_t>(saved_);
  }
  /// Uses units that available() granted.
  void spend(std::uint64_t units) { saved_ -= static_cast<double>(units); }

 private:
  double rate_;
  double burst_;
  double saved_ = 0;
  Nanos last_{};
};

}  // namespace tt::migrate
