// SPDX-License-Identifier: MIT

// CooledCounts: the hotness of base pages and of the huge pages that they are part of, halved when
// a page is looked at, and how many pages are how hot (MEMTIS, SOSP'23, §4.1, §4.2.2, §4.3.1).
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "core/histogram.hpp"
#include "core/page_map.hpp"
#include "core/types.hpp"

namespace tt::track {

/// A sample adds `factor` to a page's hotness, and one to that of its huge page. It is the hotness
/// that a cooling halves, as in the published code (htmm_core.c, check_base_cooling): halved whole
/// samples would forget a base page's only one at once, where nine coolings are meant to. Page
/// sizes are mixed from the first huge page on; without one there are pages of one size, whatever
/// that is.
class CooledCounts {
 public:
  static constexpr std::uint64_t subpages = 512;  // of a huge page

  struct State {
    std::uint32_t hotness = 0;  // as of the clock
    std::uint16_t clock = 0;    // coolings that it reflects
    std::uint8_t tag = 0;       // the user's, 0 of a page that is new
    bool mapped = false;
  };
  /// What is hot or cold, and moves, as a whole. Valid until pages are mapped, unmapped or
  /// reshaped.
  struct Entry {
    PageId page;  // the first
    State* state;
    std::uint64_t pages;
  };

  explicit CooledCounts(std::uint32_t factor) : factor_(factor) {}

  /// New pages of this hotness, none of them mapped; `huge`: a huge page.
  void map(PageRange range, std::uint32_t hotness, bool huge);
  /// Huge pages that lose some of their subpages are split.
  void unmap(PageRange range);

  /// The huge page that the page is part of, or itself.
  [[nodiscard]] Entry entry(PageId page);
  [[nodiscard]] bool huge(PageId page) const { return mixed() && huge_.get(group_of(page)).mapped; }
  /// Makes up for the coolings that it has missed; returns its hotness.
  std::uint32_t settle(const Entry& entry) const { return settle(*entry.state); }
  /// Likewise, as it is now; nothing of a page that is not mapped.
  [[nodiscard]] std::optional<std::uint32_t> hotness(PageId page) const;

  /// A sample of the page, counted for its huge page, too. `hotness`: of the page alone.
  struct Counted {
    Entry entry;
    std::uint32_t hotness = 0;
  };
  [[nodiscard]] std::optional<Counted> count(PageId page);
  /// The page will be counted soon: what is kept of it is asked for.
  void prefetch(PageId page) const {
    if (const State* const state = states_.find(page)) __builtin_prefetch(state, 1);
  }

  /// All counts are to be halved. The histograms shift at once.
  void cool();
  [[nodiscard]] std::uint64_t coolings() const { return coolings_; }
  /// Counts the histograms again, page by page: recount(first page, states) of each run. Pages of
  /// the last bin, which is open, may still belong there after a cooling.
  void begin_recount() { histogram_ = base_histogram_ = Histogram::exponential(); }
  void recount(PageId first, std::span<State> states);

  /// A huge page is made of its subpages, or falls apart into them.
  void join(PageId page);
  void split(PageId page);
  [[nodiscard]] bool mixed() const { return mixed_; }
  [[nodiscard]] std::uint64_t huge_pages() const { return huge_pages_; }

  /// visit(first page, their states) of runs of pages that share a group of 512, in order.
  template <typename Visit>
  void each_run(PageRange range, Visit visit) {
    states_.each_leaf(range, visit);
  }
  /// The pages of the group that the page is in.
  [[nodiscard]] static PageRange group(PageId page) {
    return {{page.value / subpages * subpages}, subpages};
  }
  /// visit(the part of the range) for each group.
  template <typename Visit>
  static void each_group(PageRange range, Visit visit) {
    for (PageId first = range.first; first < range.end();) {
      const PageId end = std::min(range.end(), group(first).end());
      visit(PageRange{first, end.value - first.value});
      first = end;
    }
  }
  [[nodiscard]] static Entry of(PageId page, State& state) { return {page, &state, 1}; }

  /// Base pages by hotness, those of a huge page by its own; and by theirs, as if there were no
  /// huge pages, which is kept where page sizes are mixed.
  [[nodiscard]] const Histogram& histogram() const { return histogram_; }
  [[nodiscard]] const Histogram& base_histogram() const { return base_histogram_; }

 private:
  static constexpr std::uint32_t most_hotness = 1U << 31;  // which a sample does not overflow
  static PageId group_of(PageId page) { return {page.value / subpages}; }
  std::uint32_t settle(State& state) const;
  void make_huge(PageId page, std::uint32_t samples);
  std::uint32_t increment(State& state, std::uint32_t factor, std::uint64_t pages,
                          Histogram& histogram);

  const std::uint32_t factor_;
  PageMap<State> states_, huge_;  // by page; by group, mapped if it is a huge page
  Histogram histogram_ = Histogram::exponential();
  Histogram base_histogram_ = Histogram::exponential();
  std::uint16_t clock_ = 0;
  std::uint64_t coolings_ = 0;
  std::uint64_t huge_pages_ = 0;
  bool mixed_ = false;
};

}  // namespace tt::track
