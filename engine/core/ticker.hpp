// SPDX-License-Identifier: MIT

// Ticker: when the next tick is due. The rules of Policy::tick(), for the simulator and for a live
// loop alike.
//
//  - The first tick is due one period after the start.
//  - A tick is never early. It is late when its thread is busy.
//  - Deadlines do not slip with that: the next one is a period after the last deadline, not after
//    the tick.
//  - A thread that was busy for a whole period or longer does not make up for what it missed: the
//    next deadline is a period after its tick.
//  - The period may change. A longer or shorter one holds from the next deadline on, unless
//    somebody is in a hurry: then the next tick is due a period from now, if that is earlier.
#pragma once

#include <algorithm>

#include "core/assert.hpp"

namespace tt {

/// `Time` is a duration since the start of the run: Nanos, or fractions of them where the clock is
/// a model's.
template <typename Time>
class Ticker {
 public:
  Ticker() = default;
  explicit Ticker(Time period, Time now = {}) : period_(period), next_(now + period) {}

  [[nodiscard]] Time next() const { return next_; }
  [[nodiscard]] Time period() const { return period_; }
  [[nodiscard]] bool due(Time now) const { return next_ <= now; }

  /// A tick is made now: it is due.
  void tick(Time now) {
    TT_ASSERT(due(now));
    const bool missed = now - next_ >= period_;
    next_ = (missed ? now : next_) + period_;
  }
  void set_period(Time period) { period_ = period; }
  void hurry(Time now, Time period) {
    period_ = period;
    next_ = std::min(next_, now + period);
  }

 private:
  Time period_{}, next_{};
};

}  // namespace tt
