// SPDX-License-Identifier: MIT

// LatencyGain: by how much the fast tier is faster at present, from what the memory controllers
// count.
#pragma once

#include <algorithm>
#include <array>

#include "core/seam.hpp"

namespace tt::regulate {

/// A tier's latency under its load is the occupancy of its queue over its reads (Little's law). A
/// tier that was not read since the last look is taken to be as it was.
class LatencyGain {
 public:
  void update(const Counters& counters) {
    for (const Tier tier : {Tier::fast, Tier::slow}) {
      const TierCounters& is = counters.tier[index(tier)];
      TierCounters& was = last_[index(tier)];
      if (is.reads > was.reads)
        latency_ns_[index(tier)] = (is.occupancy_ns - was.occupancy_ns) / (is.reads - was.reads);
      was = is;
    }
  }
  /// Nanoseconds that a read would save; 0 before the first look.
  [[nodiscard]] double ns() const {
    return std::max(0.0, latency_ns_[index(Tier::slow)] - latency_ns_[index(Tier::fast)]);
  }

 private:
  std::array<double, tier_count> latency_ns_{};
  std::array<TierCounters, tier_count> last_{};
};

}  // namespace tt::regulate
