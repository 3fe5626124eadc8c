// SPDX-License-Identifier: MIT

#include "regulate/latency_balance.hpp"

#include <cmath>
#include <string>

#include "core/assert.hpp"
#include "core/math.hpp"

namespace tt::regulate {

LatencyBalance::LatencyBalance(const Knobs& knobs)
    : latency_tolerance_(knobs.real("latency_tolerance")),
      share_tolerance_(knobs.real("share_tolerance")),
      weight_(knobs.real("latency_weight")) {}

double LatencyBalance::latency_ns(Tier tier) const {
  const double reads = reads_[index(tier)];
  return reads > 0 ? occupancy_ns_[index(tier)] / reads : 0;
}

bool LatencyBalance::update(const Counters& counters, double quanta) {
  std::array<double, tier_count> fresh{};
  for (std::size_t t = 0; t < tier_count; ++t) fresh[t] = counters.tier[t].reads - last_[t].reads;
  if (fresh[0] + fresh[1] <= 0) return false;
  const double weight = known_ ? -math::expm1(quanta * math::log1p(-weight_)) : 1;
  known_ = true;
  for (std::size_t t = 0; t < tier_count; ++t) {
    const double occupancy_ns = counters.tier[t].occupancy_ns - last_[t].occupancy_ns;
    occupancy_ns_[t] += weight * (occupancy_ns / quanta - occupancy_ns_[t]);
    reads_[t] += weight * (fresh[t] / quanta - reads_[t]);
  }
  last_ = counters.tier;
  decide();
  return true;
}

void LatencyBalance::decide() {
  toward_ = std::nullopt;
  shift_ = 0;
  // A tier that nobody reads answers as fast as can be.
  const double fast_ns = latency_ns(Tier::fast), slow_ns = latency_ns(Tier::slow);
  if (std::abs(fast_ns - slow_ns) < latency_tolerance_ * fast_ns) return;
  const double share = reads_[index(Tier::fast)] / reads();
  toward_ = fast_ns < slow_ns ? Tier::fast : Tier::slow;
  if (toward_ == Tier::fast) {
    low_ = share;
    if (high_ <= low_) high_ = 1;
  } else {
    high_ = share;
    if (low_ >= high_) low_ = 0;
  }
  // The bounds have met, and yet the latencies differ: the balance has moved on.
  if (high_ - low_ < share_tolerance_)
    (toward_ == Tier::fast ? high_ : low_) = toward_ == Tier::fast;
  shift_ = std::abs((low_ + high_) / 2 - share);
  TT_ASSERT(low_ >= 0 && low_ <= high_ && high_ <= 1 && shift_ <= 1);
}

std::vector<KnobDecl> latency_balance_knobs() {
  using namespace knob;
  const std::string paper = "Colloid, SOSP'24, §3";
  return list(real("latency_tolerance", 0.05, {0.001, 1, log}, ratio, paper + ": delta",
                   "difference of the tiers' latencies at which they count as equal"),
              real("share_tolerance", 0.01, {0.0001, 0.5, log}, ratio, paper + ": epsilon",
                   "distance of the bounds on the fast tier's share at which one is reset"),
              real("latency_weight", 1.0 / 32, {0.001, 1, log}, ratio, "artifact, TPP",
                   "weight of the last quantum in the averages of latency and rate"));
}

}  // namespace tt::regulate
