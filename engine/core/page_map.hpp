// SPDX-License-Identifier: MIT

// PageMap: a value for each page, without a hash table of pages and without assuming that page
// numbers are dense.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/assert.hpp"
#include "core/types.hpp"

namespace tt {

/// Values stand in leaves of 512 neighbouring pages, as in a page table; a leaf exists once one of
/// its pages has been written to. The directory of leaves is an open-addressing table, 512 times
/// smaller than one of pages would be, so that it stays in the cache. Values are T{} at first.
template <typename T>
class PageMap {
 public:
  /// Throws std::bad_alloc.
  T& operator[](PageId page) {
    const std::uint64_t number = page.value / leaf_pages;
    std::size_t slot = slot_of(number);
    if (slots_[slot].leaf == absent) {
      if (2 * (leaves_.size() + 1) > slots_.size()) {
        grow();
        slot = slot_of(number);
      }
      slots_[slot] = {number, static_cast<std::uint32_t>(leaves_.size())};
      leaves_.push_back(std::make_unique<Leaf>(Leaf{number, {}}));
      TT_ASSERT(2 * leaves_.size() <= slots_.size());  // else a search might not end
    }
    return leaves_[slots_[slot].leaf]->values[page.value % leaf_pages];
  }
  /// The page's value, or nullptr if none of its neighbours has one.
  [[nodiscard]] const T* find(PageId page) const {
    const Slot& slot = slots_[slot_of(page.value / leaf_pages)];
    return slot.leaf == absent ? nullptr : &leaves_[slot.leaf]->values[page.value % leaf_pages];
  }
  /// The page's value, T{} if it has none.
  [[nodiscard]] T get(PageId page) const {
    const T* value = find(page);
    return value == nullptr ? T{} : *value;
  }
  /// The pages' values are T{} again. What they took is kept for those that come after them.
  void erase(PageRange range) {
    each_leaf(range, [](PageId, std::span<T> values) { std::ranges::fill(values, T{}); });
  }
  /// visit(first page, values of it and those after it) for each run of pages in the range that
  /// have values, in order.
  template <typename Visit>
  void each_leaf(PageRange range, Visit visit) {
    for (std::uint64_t page = range.first.value; page < range.end().value;) {
      const std::uint64_t end = std::min(range.end().value, (page / leaf_pages + 1) * leaf_pages);
      const Slot& slot = slots_[slot_of(page / leaf_pages)];
      if (slot.leaf != absent)
        visit(PageId{page},
              std::span{leaves_[slot.leaf]->values}.subspan(page % leaf_pages, end - page));
      page = end;
    }
  }
  [[nodiscard]] std::uint64_t bytes() const {
    return leaves_.size() * sizeof(Leaf) + slots_.size() * sizeof(Slot);
  }

 private:
  static constexpr std::uint64_t leaf_pages = 512;
  static constexpr std::uint32_t absent = ~std::uint32_t{0};
  struct Leaf {
    std::uint64_t number;
    std::array<T, leaf_pages> values;
  };
  struct Slot {
    std::uint64_t number = 0;
    std::uint32_t leaf = absent;
  };

  /// The slot of a leaf, or the one where it would be.
  [[nodiscard]] std::size_t slot_of(std::uint64_t number) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t slot = mix64(number) & mask;
    while (slots_[slot].leaf != absent && slots_[slot].number != number) slot = (slot + 1) & mask;
    return slot;
  }
  void grow() {
    slots_.assign(2 * slots_.size(), {});
    for (std::uint32_t leaf = 0; leaf < leaves_.size(); ++leaf)
      slots_[slot_of(leaves_[leaf]->number)] = {leaves_[leaf]->number, leaf};
  }

  std::vector<Slot> slots_ = std::vector<Slot>(16);  // a power of two, at most half of them used
  std::vector<std::unique_ptr<Leaf>> leaves_;        // in order of their first write
};

}  // namespace tt
