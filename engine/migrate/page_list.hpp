// SPDX-License-Identifier: MIT

// PageList: pages in the order in which they came, each at most once; any of them may leave.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <unordered_map>
#include <vector>

#include "core/assert.hpp"
#include "core/types.hpp"

namespace tt::migrate {

class PageList {
 public:
  /// Puts a page at the end. One that is on the list keeps its place.
  void push(PageId page) {
    const auto [at, added] = where_.try_emplace(page);
    if (added) at->second = order_.insert(order_.end(), page);
    TT_ASSERT(where_.size() == order_.size());
  }
  /// The oldest page; there is one.
  [[nodiscard]] PageId oldest() const { return order_.front(); }
  /// The oldest pages, in order, no more than `most`.
  void oldest(std::size_t most, std::vector<PageId>& out) const {
    out.clear();
    for (auto at = order_.begin(); at != order_.end() && out.size() < most; ++at)
      out.push_back(*at);
  }
  /// Takes the oldest page.
  std::optional<PageId> pop() {
    if (order_.empty()) return std::nullopt;
    const PageId page = order_.front();
    order_.pop_front();
    where_.erase(page);
    TT_ASSERT(where_.size() == order_.size());
    return page;
  }
  /// Returns whether the page was on the list.
  bool remove(PageId page) {
    const auto at = where_.find(page);
    if (at == where_.end()) return false;
    TT_ASSERT(*at->second == page);
    order_.erase(at->second);
    where_.erase(at);
    return true;
  }
  [[nodiscard]] bool contains(PageId page) const { return where_.contains(page); }
  [[nodiscard]] std::size_t size() const { return order_.size(); }
  /// All of them, the newest first.
  [[nodiscard]] std::vector<PageId> newest_first() const {
    return {order_.rbegin(), order_.rend()};
  }

 private:
  std::list<PageId> order_;
  std::unordered_map<PageId, std::list<PageId>::iterator> where_;
};

}  // namespace tt::migrate
