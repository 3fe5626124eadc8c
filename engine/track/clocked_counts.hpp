// SPDX-License-Identifier: MIT

// ClockedCounts: samples of a page by kind of event, halved late, as HeMem's published code does.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "core/types.hpp"

namespace tt::track {

/// A clock counts the halvings. A page knows when it was last sampled, and makes up for what it has
/// missed once it is sampled again.
template <std::size_t Kinds>
class ClockedCounts {
 public:
  using PageCounts = std::array<std::uint32_t, Kinds>;

  /// Counts a sample. Returns the page's counts before any halving is made up for.
  const PageCounts& count(PageId page, std::size_t kind) {
    Entry& entry = entries_.try_emplace(page, Entry{{}, clock_}).first->second;
    ++entry.counts[kind];
    return entry.counts;
  }
  /// Makes up for what the page has missed; returns what is left.
  const PageCounts& settle(PageId page) {
    Entry& entry = entries_.at(page);
    for (auto& count : entry.counts) count >>= missed(entry);
    entry.clock = clock_;
    return entry.counts;
  }
  /// All counts are to be halved.
  void begin_cooling() { ++clock_; }
  [[nodiscard]] std::uint64_t coolings() const { return clock_; }

  /// As they stand.
  [[nodiscard]] PageCounts raw(PageId page) const {
    const auto at = entries_.find(page);
    return at == entries_.end() ? PageCounts{} : at->second.counts;
  }
  /// With all halvings that the page has missed.
  [[nodiscard]] PageCounts cooled(PageId page) const {
    const auto at = entries_.find(page);
    if (at == entries_.end()) return {};
    PageCounts counts = at->second.counts;
    for (auto& count : counts) count >>= missed(at->second);
    return counts;
  }
  void forget(PageId page) { entries_.erase(page); }

 private:
  struct Entry {
    PageCounts counts{};
    std::uint64_t clock = 0;
  };
  [[nodiscard]] std::uint64_t missed(const Entry& entry) const {
    return std::min<std::uint64_t>(clock_ - entry.clock, 31);
  }

  std::unordered_map<PageId, Entry> entries_;
  std::uint64_t clock_ = 0;
};

}  // namespace tt::track
