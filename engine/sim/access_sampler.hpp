// SPDX-License-Identifier: MIT

// Hardware access sampling: which accesses of the stream are seen by the policy.
//
// Counters do not count lines. A demand-miss event leaves out lines that a prefetcher brought in
// time, and a store event counts what the caches served, too: each entry of a class stands for a
// number of events of its own. In the full system the accesses to a simulated page are interleaved
// with those to R - 1 others, so that a counter of period P meets each event with probability 1 / P
// independently of the last one: gaps between the samples of a miniature are exponential with mean
// P. Whole segments and chunks are skipped by their sums, so that sampling costs per sample and not
// per access.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/rng.hpp"
#include "core/seam.hpp"
#include "sim/gather.hpp"
#include "sim/profile.hpp"
#include "trace/stream.hpp"

namespace tt::sim {

/// Share of a class's loaded lines that a demand-miss event counts (MEM_LOAD_L3_MISS_RETIRED on
/// Intel): those that no prefetcher asked for, and of the others those that came late.
[[nodiscard]] constexpr double demand_share(const trace::StreamClass& stream_class,
                                            const MachineProfile& profile) {
  return 1 - stream_class.prefetched * (1 - profile.prefetch_shown);
}

/// Threads of a lane when `threads` run in all: at least one, since a share below one stands for
/// what threads lose by waiting for each other.
[[nodiscard]] constexpr double lane_threads(const trace::Lane& lane, double threads) {
  return lane.thread_share > 0 ? std::max(1.0, lane.thread_share * threads) : 1;
}

class AccessSampler {
 public:
  AccessSampler(const trace::StreamInfo& info, const MachineProfile& profile, double threads,
                std::uint64_t seed);

  /// Takes effect at once.
  void set(const SamplingRequest& request);
  [[nodiscard]] const SamplingRequest& request() const { return request_; }
  /// What of it can be had: all, but for frequencies beyond what Linux lets each
  /// processor take.
  [[nodiscard]] SamplingRequest granted() const;

  /// The block that is about to be played, and its expected length: the basis of frequency mode,
  /// which sets period = event rate / frequency. The rate is a moving average over about 50 ms, as
  /// a kernel adjusts the period from recent ticks; after silence it starts anew.
  void begin(const trace::Block& block, double nanoseconds);

  /// Events per sample now, of the first lane's counter and a tier; infinite when off.
  [[nodiscard]] double period(AccessKind kind, Tier tier = Tier::fast) const {
    return counters_[index(kind)].front().period[index(tier)];
  }

  /// Thread time that a sample takes of the thread that it hits.
  [[nodiscard]] double sample_ns(AccessKind kind) const { return sample_ns_[index(kind)]; }

  /// Appends the samples of a segment, of which `in_slow` accesses go to the slow tier; returns how
  /// many.
  std::uint64_t play(const trace::Segment& segment, std::uint64_t in_slow, unsigned shift,
                     const PageBits& slow, std::vector<Sample>& out) {
    const std::size_t k = index(segment.kind);
    Counter& counter = counters_[k][group(segment.kind, segment.stream_class)];
    const double events = events_[segment.stream_class][k] * static_cast<double>(segment.sum);
    if (event(segment.kind).by_tier)
      counter.slow_events += events_[segment.stream_class][k] * static_cast<double>(in_slow);
    if (counter.next >= events) {
      counter.next -= events;
      return 0;
    }
    return hit(counter, segment, shift, slow, out);
  }

  /// Puts the samples of a block into a random order: blocks do not keep the order of accesses.
  void shuffle(std::vector<Sample>& samples);

 private:
  static constexpr double off = std::numeric_limits<double>::infinity();

  /// A counter of one kind of event, or a group of them that behave alike. Candidates come at the
  /// shorter of the tiers' periods, and of the other tier's only so many are taken.
  struct Counter {
    double threads = 0;  // on which it counts
    std::array<double, tier_count> period{off, off};
    double shortest = off;
    double next = off;        // events until the next candidate
    double rate = 0;          // simulated events per second
    double slow_share = 0;    // of the rate, where tiers are told apart
    double block_events = 0;  // in the current block
    double slow_events = 0;   // of these, in the slow tier, as far as it is played
  };

  [[nodiscard]] const SamplingRequest::Event& event(AccessKind kind) const {
    return kind == AccessKind::load ? request_.loads : request_.stores;
  }
  [[nodiscard]] std::size_t group(AccessKind kind, std::uint32_t stream_class) const {
    return event(kind).by_core ? info_.classes[stream_class].lane : 0;
  }
  bool keeps(AccessKind kind, Tier tier);
  std::uint64_t hit(Counter& counter, const trace::Segment& segment, unsigned shift,
                    const PageBits& slow, std::vector<Sample>& out);
  [[nodiscard]] double most_hertz(AccessKind kind) const;
  void observe(AccessKind kind, Counter& counter, double nanoseconds);
  void apply(AccessKind kind, Counter& counter);

  const trace::StreamInfo& info_;
  const MachineProfile& profile_;
  double threads_;
  Rng rng_;
  SamplingRequest request_;
  std::vector<std::array<double, 2>> events_;  // per class and kind: events of an entry
  std::array<std::vector<Counter>, 2> counters_;
  std::array<double, 2> sample_ns_{0, 0};
};

}  // namespace tt::sim
