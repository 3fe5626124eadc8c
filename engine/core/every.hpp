// Every: what is to be done once in a period, by whoever looks more often than that.
#pragma once

#include "core/types.hpp"

namespace tt {

/// Deadlines do not slip when a look comes late; those that were missed altogether are not made up
/// for.
class Every {
 public:
  /// First due after a period.
  explicit Every(Nanos period) : period_(period), next_(period) {}

  [[nodiscard]] bool due(Nanos now) {
    if (now < next_) return false;
    next_ += period_;
    if (next_ <= now) next_ = now + period_;
    return true;
  }
  [[nodiscard]] Nanos period() const { return period_; }

 private:
  Nanos period_, next_;
};

}  // namespace tt
