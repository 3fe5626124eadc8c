// SPDX-License-Identifier: MIT

// The fast tier's share of demand loads, window by window, from counters that cost nothing (live:
// what perf-stat counts; FreqTier, 2024, §V-B2).
#pragma once

#include <optional>

#include "core/seam.hpp"

namespace tt::regulate {

class HitRatioWindow {
 public:
  explicit HitRatioWindow(Nanos window) : window_(window) {}

  /// The hit ratio of the window that ended by `now`; nothing while it lasts. A window without
  /// loads goes on until there are some.
  std::optional<double> update(Nanos now, const Counters& counters) {
    if (now - start_ < window_) return std::nullopt;
    const double fast = counters.loads[index(Tier::fast)] - fast_;
    const double slow = counters.loads[index(Tier::slow)] - slow_;
    if (fast + slow <= 0) return std::nullopt;
    restart(now, counters);
    return fast / (fast + slow);
  }
  void restart(Nanos now, const Counters& counters) {
    start_ = now;
    fast_ = counters.loads[index(Tier::fast)];
    slow_ = counters.loads[index(Tier::slow)];
  }

 private:
  Nanos window_;
  Nanos start_{};
  double fast_ = 0, slow_ = 0;
};

}  // namespace tt::regulate
