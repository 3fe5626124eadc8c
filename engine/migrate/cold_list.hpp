// ColdList: the fast tier's cold pages, first in, first out: what to make room with (HeMem,
// SOSP'21, §3.3).
#pragma once

#include <cstdint>
#include <optional>

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
  void begin_pass() { looked_at_ = 0; }
  /// The oldest page that is in the fast tier. Looks at every page at most once per pass, and at
  /// none while nothing has changed since it last found nothing.
  std::optional<PageId> pop(const Memory& memory) {
    const std::uint64_t free = memory.free_pages(Tier::fast);
    if (exhausted_ && free == free_when_exhausted_) return std::nullopt;
    for (std::size_t left = pages_.size(); left > 0; --left) {
      const PageId page = *pages_.pop();
      Residency where{};
      memory.residency({&page, 1}, {&where, 1});
      ++looked_at_;
      if (where == Residency::fast) return page;
      if (where == Residency::absent) pages_.push(page);
    }
    exhausted_ = true;
    free_when_exhausted_ = free;
    return std::nullopt;
  }
  /// Pages looked at in this pass.
  [[nodiscard]] std::uint64_t looked_at() const { return looked_at_; }

 private:
  PageList pages_;
  std::uint64_t looked_at_ = 0;
  bool exhausted_ = false;
  std::uint64_t free_when_exhausted_ = 0;
};

}  // namespace tt::migrate
