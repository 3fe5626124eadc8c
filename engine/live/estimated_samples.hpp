// SPDX-License-Identifier: MIT

// EstimatedSamples: samples of single pages for policies that count them, on machines whose
// hardware does not sample. They are drawn from what DAMON says of whole regions: a page of a
// region is as likely as it was found accessed. Within a region every page is alike, loads and
// stores are not told apart, and how many accesses a sample stands for is assumed.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "core/rng.hpp"
#include "core/seam.hpp"
#include "live/damon_trace.hpp"
#include "live/live_memory.hpp"

namespace tt::live {

class EstimatedSamples final : public SampleSource {
 public:
  struct Options {
    double most_hertz = 1e5;      // samples a second, whatever is asked for
    double assumed_events = 1e8;  // a second, of all processes: what a period divides
  };
  EstimatedSamples(const Options& options, std::uint64_t seed) : options_(options), rng_(seed) {}

  /// Loads alone, at most so often, wherever they are.
  SamplingRequest grant(const SamplingRequest& request) override;
  /// Samples, and the assumed accesses by the tiers that they went to, whether anything is sampled
  /// or not: policies that pause wake by them.
  void count(Counters& counters) const override;

  /// Appends the samples of one aggregation of a process, which has lasted so long, in random
  /// order: of all that are granted the process's share, by how much was accessed in each process's
  /// last one. Those of pages that are not known are left out.
  void draw(const DamonAggregation& aggregation, int pid, double seconds, const LiveMemory& memory,
            std::vector<Sample>& out);
  /// These processes have a share, and no others.
  void follow(std::span<const int> pids);
  /// Samples a second, as granted.
  [[nodiscard]] double hertz() const { return hertz_; }

 private:
  /// Visits a random page in each of so many equal parts of the regions' accesses.
  template <typename Visit>
  void spread(const DamonAggregation& aggregation, double all, double parts, Visit visit);
  static double weight(const DamonRegion& region);

  Options options_;
  Rng rng_;
  std::map<int, double> accessed_;  // weight of each process's last aggregation
  double hertz_ = 0;
  double owed_ = 0;  // of a sample, from one aggregation to the next
  std::uint64_t taken_ = 0;
  std::array<double, tier_count> loads_{};  // estimated
};

}  // namespace tt::live
