// SPDX-License-Identifier: MIT

// ColdList: the fast tier's cold pages, first in, first out: what to make room with (HeMem,
// SOSP'21, §3.3).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/seam.hpp"
#include "migrate/page_list.hpp"

namespace tt::migrate {

/// Pages enter when they are mapped, in order of addresses, and when they turn cold. HeMem itself,
/// which is the allocator, enters them at their first touch: a page that is not there yet when its
/// turn comes goes to the end.
class ColdList {
 public:
  void map(PageRange range) {
    for (std::uint64_t i = 0; i < range.count; ++i) push({range.first.value + i});
  }
  void push(PageId page) {
    pages_.push(page);
    exhausted_ = false;
  }
  void remove(PageId page) { pages_.remove(page); }
  void begin_pass(const Memory& memory) {
    looked_at_ = 0;
    ahead_.clear();
    next_ = 0;
    state_ = {memory.free_pages(Tier::fast), memory.counters().moved_by_others};
  }
  /// The oldest page that is in the fast tier. Looks at every page at most once per call, and at
  /// none while nothing has changed since it last found nothing: the fast tier's free pages, or
  /// what others have moved.
  std::optional<PageId> pop(const Memory& memory) {
    if (exhausted_ && state_ == fruitless_) return std::nullopt;
    for (std::size_t left = pages_.size(); left > 0; --left) {
      if (next_ == ahead_.size() || ahead_[next_] != pages_.oldest()) look_ahead(memory);
      const Residency where = where_[next_++];
      const PageId page = *pages_.pop();
      ++looked_at_;
      if (where == Residency::fast) return page;
      if (where == Residency::absent) pages_.push(page);
    }
    exhausted_ = true;
    fruitless_ = state_;
    return std::nullopt;
  }
  /// Pages looked at in this pass.
  [[nodiscard]] std::uint64_t looked_at() const { return looked_at_; }

 private:
  struct State {
    std::uint64_t free = 0;
    double moved_by_others = 0;
    friend bool operator==(const State&, const State&) = default;
  };
  /// A batch costs a live substrate little more than a page, and most passes want few.
  void look_ahead(const Memory& memory) {
    constexpr std::size_t first = 8, most = 512;
    pages_.oldest(std::clamp(2 * ahead_.size(), first, most), ahead_);
    where_.resize(ahead_.size());
    memory.residency(ahead_, where_);
    next_ = 0;
  }

  PageList pages_;
  std::uint64_t looked_at_ = 0;
  // The next pages of this pass, and where they are.
  std::vector<PageId> ahead_;
  std::vector<Residency> where_;
  std::size_t next_ = 0;
  bool exhausted_ = false;
  State state_, fruitless_;  // in this pass, and when nothing was found
};

}  // namespace tt::migrate
