// SPDX-License-Identifier: MIT

#include "sim/timing.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tt::sim {

Traffic moved(const TierProfile& tier, const trace::StreamClass& stream_class,
              const Traffic& lines) {
  const double times = 1 + (tier.granule_bytes / line_bytes - 1) * (1 - stream_class.prefetched);
  return {lines.read * times, lines.written * times};
}

double transfer_ns(const TierProfile& tier, const Traffic& traffic) {
  double time = 0;
  if (tier.read_gbps > 0) time = std::max(time, traffic.read / tier.read_gbps);
  if (tier.write_gbps > 0) time = std::max(time, traffic.written / tier.write_gbps);
  if (tier.total_gbps > 0)
    time = std::max(time, (traffic.read + traffic.written) /
                              (tier.total_gbps * tier.loaded.at(traffic.reads()).peak()));
  return time;
}

namespace {

/// Calls `apply` with each part of `time` and the same part of `other`.
template <typename Apply>
void each_part(LaneTime& time, const LaneTime& other, Apply apply) {
  apply(time.total, other.total);
  apply(time.compute, other.compute);
  for (std::size_t t = 0; t < tier_count; ++t) apply(time.stall[t], other.stall[t]);
  apply(time.bandwidth, other.bandwidth);
  apply(time.migration, other.migration);
  apply(time.sampling, other.sampling);
  apply(time.policy, other.policy);
  apply(time.faults, other.faults);
}

}  // namespace

LaneTime& LaneTime::operator+=(const LaneTime& more) {
  each_part(*this, more, [](double& part, double more_of_it) { part += more_of_it; });
  return *this;
}

LaneTime LaneTime::since(const LaneTime& earlier) const {
  LaneTime difference = *this;
  each_part(difference, earlier, [](double& part, double before) { part -= before; });
  return difference;
}

LaneTime solve(const LaneWork& work, const std::array<TierProfile, tier_count>& tiers,
               double guess_ns) {
  std::array<double, tier_count> transfer{};
  std::array<LoadedLatency::Mix, tier_count> loaded;
  double least = 0;
  LaneTime time;
  for (const Tier tier : {Tier::fast, Tier::slow}) {
    const std::size_t t = index(tier);
    transfer[t] = transfer_ns(tiers[t], work.traffic[t]);
    loaded[t] = tiers[t].loaded.at(work.traffic[t].reads());
    const double alone = transfer[t] / (1 - work.background[t]);
    if (alone > least) time.limiting = tier;
    least = std::max(least, alone);
  }
  time.compute = work.compute_ns;
  for (const Term& term : work.terms) time.compute += term.accesses * term.issue_ns;
  time.compute /= work.threads;
  time.sampling = work.sampling_ns / work.threads;
  time.policy = work.policy_ns / work.threads;
  time.faults = work.fault_ns / work.threads;
  const double moves = work.migration_ns / work.threads;

  // The time that the threads need if the block lasts `block` ns.
  const auto needed = [&](double block) {
    for (std::size_t t = 0; t < tier_count; ++t) {
      const double own = transfer[t] > 0 ? transfer[t] / block : 0;
      time.factor[t] = loaded[t].factor(own + work.background[t]);
    }
    time.stall = {};
    for (const Term& term : work.terms) {
      const std::size_t t = index(term.tier);
      time.stall[t] += term.accesses * std::max(0.0, term.wait_ns * time.factor[t] - term.issue_ns);
    }
    for (double& stall : time.stall) stall *= (1 + work.refetched) / work.threads;
    time.migration = moves;
    if (work.in_flight_ns2 > 0)
      time.migration +=
          std::min(work.in_flight_ns2 / block, work.in_flight_limit_ns) / work.threads;
    return time.compute + time.stall[0] + time.stall[1] + time.migration + time.sampling +
           time.policy + time.faults;
  };

  // Secant steps inside a bracket, from a good guess or from the time that an idle machine needs;
  // every fourth step halves the bracket, so that no shape of curve can slow the search down.
  double low = least;
  double high = std::numeric_limits<double>::infinity();
  double block = std::max(least, guess_ns > 0 ? guess_ns : needed(1e300));
  if (block <= 0) return time;
  double need = needed(block);
  double last_block = 0;
  double last_gap = 0;
  for (int step = 1; step < 200; ++step) {
    const double gap = need - block;
    if (std::abs(gap) <= 1e-10 * block || (block <= least && gap <= 0)) break;
    (gap > 0 ? low : high) = block;
    double next = need;  // the function is nearly flat: a good first step
    if (last_block > 0 && gap != last_gap)
      next = block - gap * (block - last_block) / (gap - last_gap);
    const bool bounded = high < std::numeric_limits<double>::infinity();
    if (bounded && (step % 4 == 0 || !(next > low && next < high))) next = 0.5 * (low + high);
    if (!bounded && !(next > low)) next = need;
    last_block = block;
    last_gap = gap;
    block = std::max(next, least);
    need = needed(block);
  }
  time.bandwidth = std::max(0.0, least - need);
  time.total = need + time.bandwidth;
  return time;
}

double move_ns(const MachineProfile& machine, Tier to, double page_bytes, double movers,
               const Load& load, double together) {
  const double pages = std::max(1.0, movers / together);  // at a time
  const auto one_movers = [&](Tier tier, double gbps) {
    const double left = 1 - load.utilisation[index(tier)];
    return gbps * std::max(left, movers / (movers + load.threads)) / pages;
  };
  const Tier from = other(to);
  const double speed = std::min({machine.migration_copy_gbps * together,
                                 one_movers(from, machine.tiers[index(from)].read_gbps),
                                 one_movers(to, machine.tiers[index(to)].write_gbps)});
  return machine.migration_fixed_us * 1e3 + page_bytes / speed;
}

double outstanding_ns(double latency_ns, double mlp, double issue_ns) {
  return latency_ns > issue_ns ? std::max(issue_ns, latency_ns / mlp) : latency_ns;
}

}  // namespace tt::sim
