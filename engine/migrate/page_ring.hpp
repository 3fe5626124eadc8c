// PageRing: requests about pages, first in, first out, each page at most once (HeMem's rings
// between its sampling thread and its migration thread).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_set>

#include "core/types.hpp"

namespace tt::migrate {

class PageRing {
 public:
  /// Puts in a page and the tier where it is now. A page that is in already keeps its place.
  void push(PageId page, Tier tier) {
    if (members_.insert(page).second) queue_.push_back({page, tier});
  }
  /// Takes out up to `count` pages, the oldest first, for use(page, tier).
  template <typename Use>
  void take(std::uint64_t count, Use use) {
    for (; count > 0 && !queue_.empty(); --count) {
      const auto [page, tier] = queue_.front();
      queue_.pop_front();
      members_.erase(page);
      use(page, tier);
    }
  }
  [[nodiscard]] std::size_t size() const { return queue_.size(); }

 private:
  struct Request {
    PageId page;
    Tier tier;
  };
  std::deque<Request> queue_;
  std::unordered_set<PageId> members_;
};

}  // namespace tt::migrate
