// SPDX-License-Identifier: MIT

// OpenBlock: what was recorded since the last block was closed, coalesced by page.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "core/assert.hpp"
#include "trace/stream.hpp"

namespace tt::trace {

/// Entries of one class and kind. `last` finds a page's newest entry: epoch (of the block) in the
/// upper half, place in the lower; starting a block is adding one to the epoch.
class Coalesced {
 public:
  static constexpr std::uint32_t max_count = std::numeric_limits<std::uint16_t>::max();

  void add(std::uint32_t page, std::uint32_t count, std::uint32_t epoch, std::size_t all_pages) {
    TT_ASSERT(page < all_pages && pages_.size() == counts_.size());
    if (last_.size() < all_pages) last_.resize(all_pages);
    std::uint64_t& place = last_[page];
    if (place >> 32 == epoch) {
      std::uint16_t& entry = counts_[static_cast<std::uint32_t>(place)];
      const std::uint32_t fits = std::min(count, max_count - entry);
      entry = static_cast<std::uint16_t>(entry + fits);
      count -= fits;
    }
    if (count == 0) return;  // counts beyond 16 bits continue in a new entry
    place = std::uint64_t{epoch} << 32 | pages_.size();
    pages_.push_back(page);
    counts_.push_back(static_cast<std::uint16_t>(count));
  }
  [[nodiscard]] std::span<const std::uint32_t> pages() const { return pages_; }
  [[nodiscard]] std::span<const std::uint16_t> counts() const { return counts_; }
  void clear() {
    pages_.clear();
    counts_.clear();
  }

 private:
  std::vector<std::uint32_t> pages_;
  std::vector<std::uint16_t> counts_;
  std::vector<std::uint64_t> last_;
};

class OpenBlock {
 public:
  explicit OpenBlock(const StreamInfo& info)
      : entries_(info.classes.size() * 2),
        compute_(info.lanes.size()),
        lane_ns_(info.lanes.size()),
        operations_(info.op_kinds.size()) {}

  /// `way`: class * 2 + kind. `all_pages`: of the address space.
  void add(std::size_t way, std::uint32_t page, std::uint32_t count, std::size_t all_pages) {
    entries_.at(way).add(page, count, epoch_, all_pages);
  }
  void add_compute(std::uint32_t lane, double nanoseconds) { compute_.at(lane) += nanoseconds; }
  /// Nominal time: full-scale nanoseconds on the lane.
  void add_time(std::uint32_t lane, double nanoseconds) { lane_ns_[lane] += nanoseconds; }
  void add_operation(std::uint32_t kind) { ++operations_.at(kind); }
  [[nodiscard]] std::vector<Event>& events() { return events_; }

  [[nodiscard]] double lane_ns(std::uint32_t lane) const { return lane_ns_[lane]; }
  /// The longest lane counts.
  [[nodiscard]] double nominal_ns() const { return std::ranges::max(lane_ns_); }
  /// Whether it holds anything besides events.
  [[nodiscard]] bool busy() const {
    return nominal_ns() > 0 || std::ranges::any_of(operations_, [](auto n) { return n > 0; });
  }
  [[nodiscard]] bool empty() const { return !busy() && events_.empty(); }

  /// Its content, without sampled operations. Valid until clear().
  [[nodiscard]] Block describe(bool timed) const {
    Block block;
    block.timed = timed;
    block.nominal_ns = nominal_ns();
    block.compute_ns = compute_;
    block.operations = operations_;
    block.events = events_;
    for (std::size_t way = 0; way < entries_.size(); ++way) {
      const Coalesced& from = entries_[way];
      if (from.pages().empty()) continue;
      block.segments.push_back({static_cast<std::uint32_t>(way / 2),
                                static_cast<AccessKind>(way % 2),
                                0,
                                from.pages(),
                                from.counts(),
                                {}});
    }
    return block;
  }
  void clear() {
    for (Coalesced& entries : entries_) entries.clear();
    std::ranges::fill(compute_, 0);
    std::ranges::fill(lane_ns_, 0);
    std::ranges::fill(operations_, 0);
    events_.clear();
    ++epoch_;
  }

 private:
  std::uint32_t epoch_ = 1;
  std::vector<Coalesced> entries_;  // by way
  std::vector<double> compute_;     // by lane
  std::vector<double> lane_ns_;
  std::vector<std::uint64_t> operations_;  // by kind
  std::vector<Event> events_;
};

}  // namespace tt::trace
