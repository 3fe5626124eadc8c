// SPDX-License-Identifier: MIT

// AdaptiveThreshold: a hot threshold that follows the hotness distribution. Every so many samples
// it is set so that the hot set fits the fast tier.
#pragma once

#include <cstdint>
#include <span>

#include "core/histogram.hpp"

namespace tt::classify {

class AdaptiveThreshold {
 public:
  enum class Rule : std::uint8_t {
    fill,   // jump to MEMTIS' Algorithm 1 (SOSP'23, §4.2.1), from when on as many pages have been
            // sampled as the fast tier holds: fewer fit whatever the threshold
    step,   // one count up while the hot set exceeds the fast tier, one down while it cannot fill
            // it (FreqTier, 2024, §V-C(a))
    fixed,  // only lower() changes it
  };
  struct Options {
    Rule rule = Rule::fill;
    std::uint32_t initial = 1;  // count/page; until the first adaptation, even below the floor
    std::uint32_t floor = 1;    // never adapted below
    std::uint32_t ceiling = 1;  // never adapted above: the largest count that the tracker can hold
    double fast_pages = 0;
    double period = 0;  // samples between two adaptations
  };

  explicit AdaptiveThreshold(const Options& options);

  /// Pages whose counts went from before[i] to after[i].
  void move(std::span<const std::uint32_t> before, std::span<const std::uint32_t> after);
  void cool() { histogram_.cool(); }
  /// The fast tier holds so many pages from now on; the next adaptation goes by it.
  void set_fast_pages(double pages) { options_.fast_pages = pages; }
  /// Counts samples toward the period; adapts when it is full. Returns whether a pass was made.
  bool advance(std::uint64_t samples);

  [[nodiscard]] std::uint32_t value() const { return value_; }
  /// Less by `step`, but not below the floor.
  void lower(std::uint32_t step);
  /// The initial value again.
  void reset() { value_ = options_.initial; }
  [[nodiscard]] bool at_floor() const { return value_ <= options_.floor; }
  /// Pages at or above the threshold.
  [[nodiscard]] std::uint64_t hot_pages() const { return histogram_.at_least(value_); }
  [[nodiscard]] const Histogram& histogram() const { return histogram_; }

 private:
  void set(std::uint32_t value);  // kept within floor and ceiling

  Options options_;
  Histogram histogram_;
  std::uint32_t value_;
  double since_ = 0;
  bool filled_ = false;  // as many pages were sampled at once as the fast tier holds
};

}  // namespace tt::classify
