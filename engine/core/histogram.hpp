// SPDX-License-Identifier: MIT

// Hotness histogram: how many pages have been sampled how often. It sees only transitions of single
// pages, so it works over any tracker, probabilistic ones included: it is told each sampled page's
// count before and after.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tt {

/// Pages with a count of zero are in no bin. A page whose count a collision raised unseen leaves a
/// bin that it was not in; bins stop at zero, and cooling makes such errors fade.
class Histogram {
 public:
  /// Bin n holds counts in [2^n, 2^(n+1)), the last one has no upper bound (MEMTIS, §4.1.3).
  [[nodiscard]] static Histogram exponential(unsigned bins = 16);
  /// Bin n holds the count n + 1. For narrow counters (4 bits: 15 bins), where powers of two would
  /// leave four bins to choose a threshold from.
  [[nodiscard]] static Histogram linear(unsigned max_count);
  /// The finer of the two that stays small: linear up to 8-bit counters, else exponential.
  [[nodiscard]] static Histogram for_counter(std::uint32_t max_count);

  /// Bin of a count > 0.
  [[nodiscard]] unsigned bin(std::uint32_t count) const;
  /// Least count of a bin; 0 for a negative index, the first count beyond the top for bins().
  [[nodiscard]] std::uint32_t least(int bin) const;

  /// A page, or a unit of several, went from one count to another; 0 is "in no bin".
  void move(std::uint32_t from, std::uint32_t to, std::uint64_t pages = 1);
  void add(std::uint32_t count, std::uint64_t pages = 1) { move(0, count, pages); }
  void remove(std::uint32_t count, std::uint64_t pages = 1) { move(count, 0, pages); }

  /// Every count was halved. Exponential bins shift by one (exact but for the open last bin, whose
  /// pages are assumed to leave it: see move()); linear bins 2n and 2n+1 fold into n.
  void cool();

  /// Pages in the bins from that of `count` up (0: all).
  [[nodiscard]] std::uint64_t at_least(std::uint32_t count) const;
  [[nodiscard]] std::span<const std::uint64_t> bins() const { return bins_; }

 private:
  Histogram(bool linear, unsigned bins) : linear_(linear), bins_(bins) {}
  bool linear_;
  std::vector<std::uint64_t> bins_;
};

}  // namespace tt
