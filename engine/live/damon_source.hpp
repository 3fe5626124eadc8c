// SPDX-License-Identifier: MIT

// DamonSource: samples of pages that are estimated from the regions of the kernel's DAMON.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "live/access_source.hpp"
#include "live/estimated_samples.hpp"

namespace tt::live {

class DamonSource final : public AccessSource {
 public:
  DamonSource(KernelCalls& kernel, Changes& changes, const Damon::Options& options,
              std::uint64_t seed)
      : damon_(kernel, changes, options), samples_({}, seed) {}

  std::string_view name() const override { return "damon"; }
  /// No Need::tier_counters: how many accesses a tier serves can be estimated, and is told in
  /// Counters::loads. How long it takes for them, and how many wait at a time, cannot: a policy
  /// that goes by that (arms, pact, colloid) would see tiers that answer at once.
  Need serves() const override { return Need::samples; }
  void start(std::span<const int> pids) override { damon_.start(pids); }
  int follow(std::span<const int> pids) override;
  void collect(const LiveMemory& memory, Nanos now, std::vector<Sample>& out) override;
  /// DAMON's intervals become so many times as long, 16 times at most: it tells of accesses less
  /// than once in two seconds then.
  void spare(unsigned times) override { damon_.stretch(std::min(times, 16U)); }
  bool kernel_time(Nanos& out) override { return damon_.thread_time(out); }
  std::uint64_t lost() const override { return damon_.lost(); }
  std::string text() const override;

  SamplingRequest grant(const SamplingRequest& request) override { return samples_.grant(request); }
  void count(Counters& counters) const override { samples_.count(counters); }

 private:
  Damon damon_;
  EstimatedSamples samples_;
};

}  // namespace tt::live
