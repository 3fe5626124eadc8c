// SPDX-License-Identifier: MIT

// Allowances: how much may be done per pass or per second, where the amount may be a fraction.
//
// A limit of 32 pages per pass on a miniature of scale 64 is half a page per pass. Rounding it
// would halve or double the limit, so the remainder is carried.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/assert.hpp"
#include "core/types.hpp"

namespace tt::migrate {

/// A number of units per pass. What a pass leaves unused is lost, except for the fraction of a
/// unit.
class PerPass {
 public:
  explicit PerPass(double units = 0) : units_(units) {}
  /// Starts a pass: whole units that it may use.
  std::uint64_t next() { return next(units_); }
  /// The same for a pass that has a number of its own.
  std::uint64_t next(double units) {
    TT_ASSERT(units >= 0);
    carry_ += units;
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
    TT_ASSERT(saved_ <= burst_);
    return static_cast<std::uint64_t>(std::max(0.0, saved_));
  }
  /// Uses units that available() granted.
  void spend(std::uint64_t units) {
    TT_ASSERT(static_cast<double>(units) <= saved_);
    overspend(units);
  }
  /// Uses units of which some may not have been granted: those are taken from the next.
  void overspend(std::uint64_t units) { saved_ -= static_cast<double>(units); }

 private:
  double rate_;
  double burst_;
  double saved_ = 0;
  Nanos last_{};
};

/// Pauses for a second after each demotion, from one that was faster than `rate` on until one is
/// slower than a tenth of it (HybridTier, ASPLOS'25, published code).
class DemotionPause {
 public:
  /// `rate` in pages per second.
  explicit DemotionPause(double rate) : rate_(rate) {}

  /// Pages were demoted, since the last call or at once.
  void demoted(std::uint64_t pages, Nanos now) {
    pages_ += static_cast<double>(pages);
    if (now <= last_) return;
    const double rate = pages_ / seconds(now - last_);
    if (rate > rate_) on_ = true;
    if (rate < rate_ / 10) on_ = false;
    if (on_) until_ = now + from_seconds(1);
    last_ = now;
    pages_ = 0;
  }
  [[nodiscard]] bool paused(Nanos now) const { return now < until_; }

 private:
  double rate_;
  double pages_ = 0;  // since last_
  bool on_ = false;
  Nanos last_{}, until_{};
};

}  // namespace tt::migrate
