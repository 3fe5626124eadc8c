// SPDX-License-Identifier: MIT

// MovingAverages: how often each page has been sampled per round, over a short and a long time.
#pragma once

#include <cstdint>
#include <span>

#include "core/page_map.hpp"
#include "core/types.hpp"

namespace tt::track {

/// Weight of the latest of `rounds` values in their exponential moving average: the average age of
/// what it holds is then that of a mean over so many.
[[nodiscard]] constexpr double ewma_weight(double rounds) { return 2 / (rounds + 1); }

/// Exponential moving averages of samples per round, for rounds that the caller ends.
class MovingAverages {
 public:
  /// So many rounds make up a short and a long time, at least 1.
  MovingAverages(double short_rounds, double long_rounds)
      : short_weight_(static_cast<float>(ewma_weight(short_rounds))),
        long_weight_(static_cast<float>(ewma_weight(long_rounds))) {}

  struct Page {
    float samples = 0;  // in this round
    float recent = 0, lasting = 0;
  };

  void count(PageId page, double samples) { pages_[page].samples += static_cast<float>(samples); }
  /// Ends the round for the pages of a range, and calls visit(page, its averages) for each.
  template <typename Visit>
  void end_round(PageRange range, Visit visit) {
    PageId next = range.first;
    const auto blank = [&](PageId end) {
      for (; next < end; ++next.value) visit(next, Page{});
    };
    pages_.each_leaf(range, [&](PageId first, std::span<Page> pages) {
      blank(first);
      for (Page& page : pages) {
        page.recent += short_weight_ * (page.samples - page.recent);
        page.lasting += long_weight_ * (page.samples - page.lasting);
        page.samples = 0;
        visit(next, page);
        ++next.value;
      }
    });
    blank(range.end());
  }
  [[nodiscard]] Page get(PageId page) const { return pages_.get(page); }
  void erase(PageRange range) { pages_.erase(range); }

 private:
  float short_weight_, long_weight_;
  PageMap<Page> pages_;
};

}  // namespace tt::track
