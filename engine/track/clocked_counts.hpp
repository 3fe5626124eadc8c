// SPDX-License-Identifier: MIT

// ClockedCounts: samples of a page by kind of event, halved late, as HeMem's published code does.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace tt::track {

/// A clock counts the halvings. A page's entry, which the caller keeps, knows when it was last
/// sampled, and makes up for what it has missed once it is sampled again.
template <std::size_t Kinds>
class ClockedCounts {
 public:
  static constexpr std::uint32_t never = UINT32_MAX;
  using PageCounts = std::array<std::uint32_t, Kinds>;
  struct Entry {
    PageCounts counts{};          // as they stand
    std::uint32_t clock = never;  // when they were last halved
  };

  /// Counts a sample. Returns the page's counts before any halving is made up for.
  const PageCounts& count(Entry& entry, std::size_t kind) const {
    if (entry.clock == never) entry.clock = clock_;
    ++entry.counts[kind];
    return entry.counts;
  }
  /// Makes up for what the page has missed; returns what is left.
  const PageCounts& settle(Entry& entry) const {
    entry.counts = cooled(entry);
    entry.clock = clock_;
    return entry.counts;
  }
  /// All counts are to be halved.
  void begin_cooling() { ++clock_; }
  [[nodiscard]] std::uint32_t coolings() const { return clock_; }

  /// With all halvings that the page has missed.
  [[nodiscard]] PageCounts cooled(const Entry& entry) const {
    PageCounts counts = entry.counts;
    const std::uint32_t missed = std::min<std::uint32_t>(clock_ - entry.clock, 31);
    for (auto& count : counts) count >>= missed;
    return counts;
  }

 private:
  std::uint32_t clock_ = 0;
};

}  // namespace tt::track
