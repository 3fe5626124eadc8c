// SPDX-License-Identifier: MIT

// LatencyThreshold: which hint faults came soon enough after the page was protected that the page
// counts as hot, and how many of them may be promoted (Linux 6.3, kernel/sched/fair.c,
// numa_promotion_adjust_threshold and numa_promotion_rate_limit).
//
// Times are in ticks of the timer: a threshold of few ticks is half a tick shorter than it says.
// A fault below the threshold is a candidate; those beyond the rate limit of a second stay. Each
// adjustment period the threshold goes down a sixteenth of twice the initial one if there were more
// candidates than 1.1 times what the limit allows for the period, and up, to at most twice the
// initial one, if there were fewer than 0.9 times.
#pragma once

#include <cstdint>
#include <vector>

#include "core/knob.hpp"
#include "core/types.hpp"

namespace tt::classify {

class LatencyThreshold {
 public:
  /// With the knobs of latency_threshold_knobs().
  LatencyThreshold(const Knobs& knobs, std::uint64_t page_bytes, Nanos adjustment_period);

  /// Whether a page that faulted `since` after it was protected is promoted.
  [[nodiscard]] bool admit(Nanos since, Nanos now);
  /// The initial threshold again, as after a change of the workload.
  void reset() { value_ = initial_; }
  [[nodiscard]] Nanos value() const { return value_; }
  [[nodiscard]] std::uint64_t candidates() const { return candidates_; }

 private:
  void adjust(Nanos now);

  const Nanos initial_, step_, period_;
  const double rate_;  // pages per second
  Nanos value_;
  std::uint64_t candidates_ = 0;           // so far
  std::uint64_t candidates_then_ = 0;      // when the second began
  std::uint64_t candidates_adjusted_ = 0;  // when the threshold was last adjusted
  Nanos second_{}, adjusted_{};
};

/// hot_threshold and promote_rate_limit.
[[nodiscard]] std::vector<KnobDecl> latency_threshold_knobs();

}  // namespace tt::classify
