// SPDX-License-Identifier: MIT

// RegionMonitor: how often is memory accessed, by regions of neighbouring pages (DAMON: Park et
// al., "Profiling Dynamic Data Access Patterns with Controlled Overhead and Quality", Middleware'19
// Industry, and HPDC'22; Linux, Documentation/mm/damon/design.rst and mm/damon/core.c).
//
// Pages of a region are taken to be accessed alike. Once in a sampling interval one page of each
// region, drawn at random, is asked for its accessed bit (Memory::probe). After an aggregation
// interval neighbours whose counts differ little are merged, and then every region is split at
// random in case its parts differ. So there are as many regions as the accesses have steps, between
// two limits, and the cost does not depend on the size of memory.
//
// A policy calls, in this order:
//
//     tick(now, ranges)                  in tick(): asks ahead of time
//     if (answered(probes)) {            in on_probed(): an aggregation is over, and
//       ... regions() ...                its counts, merged, and ages can be used
//       next(now, ranges);               begins the next one
//     }
//
// In between, regions() have a moving count. The mapped ranges are looked at every update interval.
//
// A region is a share of the address space, so a miniature has as many as the full system; a
// smallest region is a page of the miniature. With less than a few pages per region a miniature
// sees more than the full system would.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/rng.hpp"
#include "core/seam.hpp"

namespace tt::track {

struct Region {
  PageRange range;
  std::uint32_t accesses = 0;  // samples of this aggregation that found a page accessed
  std::uint32_t last = 0;      // of the last aggregation
  /// Of as many latest samples as an aggregation has: those of the last one are taken to have been
  /// spread evenly over it, and leave at that rate.
  float moving = 0;
  std::uint32_t age = 0;  // aggregations since its count changed much
};

class RegionMonitor {
 public:
  /// Intervals that find their own length: longer while a smaller share of the possible accesses is
  /// seen than wanted, shorter while a larger one is (Linux 6.15). The number of samples in an
  /// aggregation stays.
  struct Goal {
    double share = 0;  // of samples, weighted by size, that find an access; 0: intervals are fixed
    unsigned aggregations = 3;  // between two changes
    Nanos least{}, most{};      // of the sampling interval
  };
  struct Options {
    Nanos sampling{}, aggregation{}, update{};
    double min_regions = 1, max_regions = 1;
    Goal goal;
  };

  /// Throws std::invalid_argument if an aggregation is shorter than a sampling interval, or the
  /// least number of regions above the most.
  RegionMonitor(Memory& memory, const Options& options, std::uint64_t seed);

  void tick(Nanos now, std::span<const PageRange> mapped);
  /// How often tick() wants to be called.
  [[nodiscard]] Nanos tick_period() const;
  /// One call's answers. Returns whether the aggregation is over.
  [[nodiscard]] bool answered(std::span<const Probe> probes);
  void next(Nanos now, std::span<const PageRange> mapped);

  /// Sorted, disjoint. Their ages may be set.
  [[nodiscard]] std::span<Region> regions() { return regions_; }
  [[nodiscard]] std::span<const Region> regions() const { return regions_; }
  /// Whole accesses of a region in as many samples as an aggregation has.
  [[nodiscard]] static std::uint32_t accesses(const Region& region) {
    return static_cast<std::uint32_t>(region.moving + 1e-3F);
  }
  /// Samples in an aggregation.
  [[nodiscard]] std::uint32_t samples() const { return samples_; }
  [[nodiscard]] Nanos sampling() const { return sampling_; }
  [[nodiscard]] Nanos aggregation() const { return sampling_ * samples_; }
  /// The region of a page; null if none. Fast for pages that are asked for in order.
  [[nodiscard]] const Region* find(PageId page) const;

 private:
  void ask(Nanos now);
  void merge();
  void tune();
  void split();
  void update(std::span<const PageRange> mapped);
  void cover(PageId from, PageId to);
  /// Whether regions are in order, apart, not empty, and not found accessed more often than asked.
  [[nodiscard]] bool consistent() const;

  Memory& memory_;
  Options options_;
  Rng rng_;
  Nanos sampling_;
  std::uint32_t samples_;
  std::vector<Region> regions_, other_;  // `other_`: scratch
  std::uint64_t most_pages_ = 1;         // of one region
  std::uint32_t asked_ = 0;              // samples of this aggregation
  std::uint32_t answered_ = 0;
  std::size_t at_ = 0;  // region that the next answer is about
  Nanos from_{};        // when the next sample begins
  Nanos updated_{};
  unsigned untuned_ = 0;        // aggregations since the intervals last changed
  std::size_t last_count_ = 0;  // regions before the last split
  std::vector<Probe> probes_;   // scratch
  mutable std::size_t found_ = 0;
};

}  // namespace tt::track
