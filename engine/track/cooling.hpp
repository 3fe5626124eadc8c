// SPDX-License-Identifier: MIT

// CoolingTracker: a tracker whose counts are halved every so many samples.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>

#include "core/seam.hpp"
#include "track/tracker.hpp"

namespace tt::track {

/// Halving makes the counts an exponential moving average with factor 1/2. The lines are halved in
/// slices, in proportion to the samples counted: a halving is over after half a period, and no
/// batch pays for all of it.
class CoolingTracker {
 public:
  /// `period` in samples; may be fractional in a miniature. `kept`: the share of a period that
  /// still counts after a halving, so that later ones come sooner than the first (HybridTier's
  /// published code halves its number of samples with the counters).
  CoolingTracker(std::unique_ptr<Tracker> tracker, double period, double kept = 0)
      : tracker_(std::move(tracker)), first_period_(period), period_(period), kept_(kept) {}

  [[nodiscard]] Tracker& operator*() const { return *tracker_; }
  [[nodiscard]] Tracker* operator->() const { return tracker_.get(); }

  /// The period is so many times the first one from now on.
  void stretch(double times) { period_ = first_period_ * times; }

  /// Samples that may be counted before the next halving begins, at least 1.
  [[nodiscard]] std::uint64_t room() const {
    return static_cast<std::uint64_t>(std::max(1.0, std::ceil(period_ - since_)));
  }

  /// `samples` more were counted, at most room(). Returns whether a halving began.
  bool advance(std::uint64_t samples, Memory& memory) {
    since_ += static_cast<double>(samples);
    if (tracker_->cooling()) {
      const double share = 2.0 * static_cast<double>(samples) / (period_ * (1 - kept_));
      const auto lines =
          static_cast<std::uint64_t>(std::ceil(share * static_cast<double>(tracker_->lines())));
      memory.charge(Work::cooling_step, tracker_->cool(lines));
    }
    if (since_ < period_) return false;
    since_ = std::max(0.0, since_ - period_);
    if (since_ >= period_) since_ = 0;
    since_ += kept_ * period_;
    tracker_->begin_cooling();
    ++epoch_;
    return true;
  }
  /// Halves the counts now, whatever the samples.
  void halve() {
    since_ *= kept_;
    tracker_->begin_cooling();
    ++epoch_;
  }

  /// Halvings so far. A count remembered in epoch e, shifted right by epoch() - e, compares with
  /// one of now.
  [[nodiscard]] std::uint64_t epoch() const { return epoch_; }

 private:
  std::unique_ptr<Tracker> tracker_;
  double first_period_, period_, kept_;
  double since_ = 0;  // samples since the last halving began
  std::uint64_t epoch_ = 0;
};

}  // namespace tt::track
