// SPDX-License-Identifier: MIT

#include "migrate/mapped_ranges.hpp"

#include <algorithm>

#include "core/assert.hpp"

namespace tt::migrate {
namespace {

// First range that ends after `page`.
auto after(const std::vector<PageRange>& ranges, PageId page) {
  return std::ranges::upper_bound(ranges, page, {}, [](const PageRange& r) { return r.end(); });
}

}  // namespace

void MappedRanges::map(PageRange range) {
  ++version_;
  if (range.count == 0) return;
  unmap(range);
  const auto at = ranges_.insert(after(ranges_, range.first), range);
  pages_ += range.count;
  // Merge with the neighbours that touch it.
  const auto next = at + 1;
  if (next != ranges_.end() && at->end() == next->first) {
    at->count += next->count;
    ranges_.erase(next);
  }
  if (at != ranges_.begin() && (at - 1)->end() == at->first) {
    (at - 1)->count += at->count;
    ranges_.erase(at);
  }
  TT_ASSERT_FULL(consistent());
}

void MappedRanges::unmap(PageRange range) {
  if (range.count == 0) return;
  auto it = ranges_.begin() + (after(ranges_, range.first) - ranges_.cbegin());
  while (it != ranges_.end() && it->first < range.end()) {
    const PageRange old = *it;
    const PageId from = std::max(old.first, range.first);
    const PageId to = std::min(old.end(), range.end());
    TT_ASSERT(from < to && to.value - from.value <= pages_);
    pages_ -= to.value - from.value;
    const PageRange head{old.first, from.value - old.first.value};
    const PageRange tail{to, old.end().value - to.value};
    if (head.count > 0 && tail.count > 0) {
      *it = head;
      ranges_.insert(it + 1, tail);
      TT_ASSERT_FULL(consistent());
      return;
    }
    if (head.count == 0 && tail.count == 0) {
      it = ranges_.erase(it);
      continue;
    }
    *it = head.count > 0 ? head : tail;
    ++it;
  }
  TT_ASSERT_FULL(consistent());
}

bool MappedRanges::consistent() const {
  std::uint64_t pages = 0;
  for (std::size_t i = 0; i < ranges_.size(); ++i) {
    if (ranges_[i].count == 0) return false;
    if (i > 0 && ranges_[i].first <= ranges_[i - 1].end()) return false;
    pages += ranges_[i].count;
  }
  return pages == pages_;
}

bool MappedRanges::contains(PageId page) const {
  const auto it = after(ranges_, page);
  return it != ranges_.end() && it->contains(page);
}

PageRange MappedRanges::next(PageId from, std::uint64_t limit) const {
  if (ranges_.empty() || limit == 0) return {};
  auto it = after(ranges_, from);
  if (it == ranges_.end()) it = ranges_.begin();
  const PageId start = it->contains(from) ? from : it->first;
  return {start, std::min(limit, it->end().value - start.value)};
}

}  // namespace tt::migrate
