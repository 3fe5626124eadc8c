// HotLists: the pages that are hot, each on the list of its tier (HeMem, SOSP'21). All others are
// cold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/types.hpp"

namespace tt::migrate {

/// The slow tier's list is a queue, first in, first out: what to promote. A page that turns cold or
/// is promoted leaves its entry behind, which is skipped, and dropped once it is in front.
class HotLists {
 public:
  [[nodiscard]] bool contains(PageId page) const { return hot_.contains(page); }
  /// Whether the page has an entry in the slow tier's queue.
  [[nodiscard]] bool queued(PageId page) const;
  [[nodiscard]] std::size_t size() const { return hot_.size(); }
  [[nodiscard]] std::size_t slow_entries() const { return slow_.size(); }
  [[nodiscard]] std::size_t sweep_left() const { return sweep_.size(); }
  [[nodiscard]] std::uint64_t bytes() const;

  /// The page is hot and on the list of that tier from now on.
  void put(PageId page, Tier tier);
  /// The page is cold from now on. Returns whether it was hot.
  bool erase(PageId page) { return hot_.erase(page) > 0; }
  /// The pages are gone. Returns how many of them were hot.
  std::size_t unmap(PageRange range);

  /// Hands the slow list's pages to take() in order, until it says no.
  using Take = std::function<bool(PageId)>;
  void for_each_slow(const Take& take);
  /// `pages`, the first of those that take() got, are on their way to the fast tier: they are on
  /// its list until put() says otherwise.
  void promoted(std::span<const PageId> pages);

  /// All hot pages are to be looked at again, in address order. What a sweep under way has looked
  /// at already is looked at again after it.
  void begin_sweep();
  /// Hands the next `count` pages of the sweep to look(), which may erase them. Returns how many.
  std::uint64_t sweep(std::uint64_t count, const std::function<void(PageId)>& look);

 private:
  struct Hot {
    Tier list = Tier::fast;
    bool queued = false;  // in slow_
  };
  void start_sweep();

  std::unordered_map<PageId, Hot> hot_;
  std::deque<PageId> slow_;
  std::size_t stale_ = 0;      // entries that the last for_each_slow() skipped
  std::vector<PageId> sweep_;  // taken from the back
  bool sweep_again_ = false;   // another one began during the sweep
};

}  // namespace tt::migrate
