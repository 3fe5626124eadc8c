// SPDX-License-Identifier: MIT

// LatencyBalance: where accesses should go so that both tiers answer in the same time (Vuppalapati
// and Agarwal, "Tiered Memory Management: Access Latency is the Key!" (Colloid), SOSP'24, §3).
//
// By Little's law a tier's loaded latency is the occupancy of its queue over its arrivals, both as
// moving averages over quanta. While the latencies differ, the share p of accesses that the fast
// tier serves is to move by
//
//     p_lo, p_hi   bounds on the share at which latencies balance: the share seen while the fast
//                  tier was the faster, and while it was the slower one
//     dp = | (p_lo + p_hi) / 2 - p |
//
// which halves the distance each time; a bound that the workload has left behind is reset.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "core/knob.hpp"
#include "core/seam.hpp"

namespace tt::regulate {

class LatencyBalance {
 public:
  /// With the knobs of latency_balance_knobs().
  explicit LatencyBalance(const Knobs& knobs);

  /// Ends so many quanta at these counters; a late caller may have missed some. Without reads in
  /// them nothing changes, and it returns false.
  bool update(const Counters& counters, double quanta = 1);

  /// The tier that accesses should move to; none while the latencies balance, or nothing is known.
  [[nodiscard]] std::optional<Tier> toward() const { return toward_; }
  /// The share of all accesses that should move there.
  [[nodiscard]] double shift() const { return shift_; }
  /// Loaded latency, and the average reads of a quantum.
  [[nodiscard]] double latency_ns(Tier tier) const;
  [[nodiscard]] double reads() const { return reads_[0] + reads_[1]; }

 private:
  void decide();

  const double latency_tolerance_, share_tolerance_, weight_;
  std::array<TierCounters, tier_count> last_{};
  std::array<double, tier_count> occupancy_ns_{}, reads_{};  // of a quantum, moving averages
  bool known_ = false;
  double low_ = 0, high_ = 1;
  double shift_ = 0;
  std::optional<Tier> toward_;
};

/// latency_tolerance, share_tolerance, latency_weight.
[[nodiscard]] std::vector<KnobDecl> latency_balance_knobs();

}  // namespace tt::regulate
