// SPDX-License-Identifier: MIT

// History: in which of the last scans a page had been accessed since the scan before, a bit each;
// and the fast tier's pages by how many of those bits are set (Kim, Choe and Ahn, "Exploring the
// Design Space of Page Management for Multi-Tiered Memory Systems" (AutoTiering), ATC'21, §3).
//
// A page that is new, or has moved, has a full history: it is given time. On the list of its level
// a page that a scan finds untouched goes to the head, from which victims are taken, and one that
// was touched to the tail.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/assert.hpp"
#include "core/types.hpp"
#include "track/chains.hpp"
#include "track/page_index.hpp"

namespace tt::track {

class History {
 public:
  static constexpr unsigned most_bits = 8;
  /// So many scans are remembered, 1 to 8.
  explicit History(unsigned bits) : full_(static_cast<std::uint8_t>((1U << bits) - 1)) {}

  void map(PageRange range) {
    index_.map(range, [&](std::uint32_t i) {
      if (i >= bits_.size()) {
        bits_.resize(index_.size());
        levels_.resize(index_.size());
      }
      bits_[i] = full_;
    });
  }
  void unmap(PageRange range) {
    index_.unmap(range, [&](std::uint32_t i) { levels_.take_off(i); });
    TT_ASSERT_FULL(levels_.consistent());
  }
  [[nodiscard]] bool contains(PageId page) const { return index_.contains(page); }
  [[nodiscard]] std::uint64_t pages() const { return index_.pages(); }

  // Of a page that is not mapped: nothing.
  /// A scan found the page in this tier, touched since the last one or not.
  void scanned(PageId page, Tier tier, bool touched) {
    const std::uint32_t i = index_.find(page);
    if (i == PageIndex::none) return;
    bits_[i] = static_cast<std::uint8_t>(bits_[i] << 1 | (touched ? 1 : 0)) & full_;
    enlist(i, tier, touched);
  }
  /// It is in this tier now.
  void moved(PageId page, Tier to) {
    const std::uint32_t i = index_.find(page);
    if (i == PageIndex::none) return;
    bits_[i] = full_;
    enlist(i, to, true);
  }
  /// It has been taken as a victim, and is none until it is scanned again.
  void take(PageId page) {
    const std::uint32_t i = index_.find(page);
    if (i != PageIndex::none) levels_.take_off(i);
  }

  /// Scans that found the page touched, of those that are remembered.
  [[nodiscard]] unsigned level(PageId page) const {
    const std::uint32_t i = index_.find(page);
    return i == PageIndex::none ? 0 : static_cast<unsigned>(std::popcount(bits_[i]));
  }
  [[nodiscard]] unsigned full() const { return static_cast<unsigned>(std::popcount(full_)); }
  /// The first page of the fast tier's lowest level, if that is below this one.
  [[nodiscard]] std::optional<PageId> coldest(unsigned below) const {
    for (unsigned level = 0; level < below; ++level)
      if (levels_.head(level) != Chains::none) return index_.page(levels_.head(level));
    return std::nullopt;
  }
  [[nodiscard]] std::uint64_t size(unsigned level) const { return levels_.size(level); }

 private:
  void enlist(std::uint32_t i, Tier tier, bool touched) {
    const auto level = static_cast<std::uint8_t>(std::popcount(bits_[i]));
    if (tier == Tier::slow) {
      levels_.take_off(i);
    } else if (touched) {
      levels_.to_tail(i, level);
    } else {
      levels_.to_head(i, level);
    }
  }

  const std::uint8_t full_;
  PageIndex index_;
  std::vector<std::uint8_t> bits_;  // the last scan lowest
  Chains levels_{most_bits + 1};    // of the fast tier's pages
};

}  // namespace tt::track
