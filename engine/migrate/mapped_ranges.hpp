// SPDX-License-Identifier: MIT

// MappedRanges: the ranges that the application has mapped (live: /proc/PID/maps).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/types.hpp"

namespace tt::migrate {

/// Sorted, disjoint, merged ranges. It is harmless to map what is mapped, or to unmap what is not:
/// a live process may report both.
class MappedRanges {
 public:
  void map(PageRange range);
  void unmap(PageRange range);
  [[nodiscard]] bool contains(PageId page) const;
  [[nodiscard]] std::uint64_t pages() const { return pages_; }
  /// In order of addresses.
  [[nodiscard]] std::span<const PageRange> ranges() const { return ranges_; }
  /// Calls of map() so far: unchanged means that nothing new is mapped.
  [[nodiscard]] std::uint64_t version() const { return version_; }
  [[nodiscard]] std::uint64_t bytes() const { return ranges_.capacity() * sizeof(PageRange); }

  /// The first run of at most `limit` mapped pages at or after `from`, wrapping to the lowest range
  /// at the end. Empty only if nothing is mapped. The caller's cursor is a page number, so it
  /// stays valid while ranges appear and vanish around it.
  [[nodiscard]] PageRange next(PageId from, std::uint64_t limit) const;

 private:
  /// Whether ranges are in order, apart, not empty, and have as many pages as it says.
  [[nodiscard]] bool consistent() const;

  std::vector<PageRange> ranges_;
  std::uint64_t pages_ = 0;
  std::uint64_t version_ = 0;
};

}  // namespace tt::migrate
