// SPDX-License-Identifier: MIT

// Tracker: "how often was this page sampled lately". Trackers count; they neither migrate nor know
// where their parameters come from.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/page_count.hpp"
#include "core/types.hpp"

namespace tt::track {

/// Common interface; dispatch is per batch. All implementations halve incrementally:
/// begin_cooling() only notes that a halving is due, cool(n) does a bounded slice of it, and get()
/// and increment() behave at every moment as if all counters had been halved at begin_cooling().
class Tracker {
 public:
  virtual ~Tracker() = default;
  /// Adds each count to its page, saturating at max_count().
  virtual void increment(std::span<const PageCount> batch) = 0;
  /// Counts one sample for each page (a page may occur more than once).
  virtual void increment(std::span<const PageId> batch) = 0;
  /// out[i] = count of pages[i]. A vector is resized to fit.
  virtual void get(std::span<const PageId> pages, std::span<std::uint32_t> out) const = 0;
  void get(std::span<const PageId> pages, std::vector<std::uint32_t>& out) const {
    out.resize(pages.size());
    get(pages, std::span{out});
  }
  [[nodiscard]] virtual std::uint32_t get(PageId page) const = 0;
  /// Starts halving every counter. A halving still under way is finished first.
  virtual void begin_cooling() = 0;
  /// Halves up to `lines` 64-byte lines (exact tracker: the same share of its table); returns lines
  /// done. Nothing to do: 0.
  virtual std::uint64_t cool(std::uint64_t lines) = 0;
  [[nodiscard]] virtual bool cooling() const = 0;
  [[nodiscard]] virtual std::uint64_t lines() const = 0;
  [[nodiscard]] virtual std::uint32_t max_count() const = 0;
  [[nodiscard]] virtual std::uint64_t bytes() const = 0;
};

}  // namespace tt::track
