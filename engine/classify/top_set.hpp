// SPDX-License-Identifier: MIT

// TopSet: the pages with the highest scores, as many as the fast tier holds, and for how many
// rounds each has been among them without a break (ARMS, 2025).
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "core/page_map.hpp"
#include "core/types.hpp"

namespace tt::classify {

class TopSet {
 public:
  /// A page and its score in this round; the rest is filled in.
  struct Item {
    PageId page;
    float score = 0;
    std::uint32_t age = 0;   // rounds in the top set, this one included; 0: it is not in it
    bool falling = false;    // it had a higher score in the last round
    Tier tier = Tier::slow;  // the caller's
    float least = 0, most = 0;
  };
  /// The order by which they are chosen: scores, and page numbers where these are equal.
  static bool higher(const Item& a, const Item& b) {
    return a.score != b.score ? a.score > b.score : a.page < b.page;
  }

  /// Ends a round, of which `items` are all pages: the top ones, at most `fits`, come to the front,
  /// in no order. Returns how many they are.
  std::size_t choose(std::span<Item> items, std::uint64_t fits) {
    const auto top = static_cast<std::size_t>(std::min<std::uint64_t>(fits, items.size()));
    if (top < items.size())
      std::nth_element(items.begin(), items.begin() + static_cast<std::ptrdiff_t>(top), items.end(),
                       higher);
    for (std::size_t i = 0; i < items.size(); ++i) {
      Item& item = items[i];
      // Most pages were never sampled: nothing has to be remembered of them.
      const bool in = i < top && item.score > 0;
      if (item.score == 0 && known_.get(item.page) == Known{}) continue;
      Known& known = known_[item.page];
      item.age = known.age = in ? known.age + 1 : 0;
      item.falling = item.score < known.score;
      known.score = item.score;
    }
    return top;
  }
  /// Whether the page was in the last round's top set.
  [[nodiscard]] bool contains(PageId page) const { return known_.get(page).age > 0; }
  void erase(PageRange range) { known_.erase(range); }

 private:
  struct Known {
    float score = 0;
    std::uint32_t age = 0;
    friend bool operator==(const Known&, const Known&) = default;
  };
  PageMap<Known> known_;
};

}  // namespace tt::classify
