// SPDX-License-Identifier: MIT

#include "classify/latency_threshold.hpp"

#include <algorithm>

#include "core/timer_tick.hpp"

namespace tt::classify {
namespace {

constexpr int steps = 16;

}  // namespace

LatencyThreshold::LatencyThreshold(const Knobs& knobs, std::uint64_t page_bytes,
                                   Nanos adjustment_period)
    : initial_(from_millis(knobs.real("hot_threshold"))),
      step_(2 * initial_ / steps),
      period_(adjustment_period),
      rate_(knobs.real("promote_rate_limit") * (1 << 30) / static_cast<double>(page_bytes)),
      value_(initial_) {}

bool LatencyThreshold::admit(Nanos since, Nanos now) {
  adjust(now);
  // Both times are of the last tick (numa_hint_fault_latency).
  const Nanos then = std::max(now - since, Nanos{});
  if ((now / timer_tick - then / timer_tick) * timer_tick >= value_) return false;
  ++candidates_;
  if (now - second_ > from_seconds(1)) {
    second_ = now;
    candidates_then_ = candidates_;
  }
  // In a miniature the limit may be a fraction of a page.
  return static_cast<double>(candidates_ - candidates_then_) < rate_;
}

void LatencyThreshold::adjust(Nanos now) {
  if (now - adjusted_ <= period_) return;
  const auto found = static_cast<double>(candidates_ - candidates_adjusted_);
  const double allowed = rate_ * seconds(period_);
  if (found > 1.1 * allowed) {
    value_ = std::max(value_ - step_, step_);
  } else if (found < 0.9 * allowed) {
    value_ = std::min(value_ + step_, 2 * initial_);
  }
  candidates_adjusted_ = candidates_;
  adjusted_ = now;
}

std::vector<KnobDecl> latency_threshold_knobs() {
  using namespace knob;
  return list(real("hot_threshold", 1000, {1, 60000, log}, milliseconds,
                   "Linux 6.3, numa_balancing/hot_threshold_ms",
                   "time from protection to fault below which a page is hot, at first"),
              real("promote_rate_limit", 64, {0.001, 1024, log}, gib_per_second,
                   "Linux 6.3, kernel.numa_balancing_promote_rate_limit_MBps",
                   "most memory promoted in a second, which the hot threshold is adjusted to"));
}

}  // namespace tt::classify
