// SPDX-License-Identifier: MIT

// PageIndex: small numbers for mapped pages, so that what is kept of each page can stand in flat
// arrays.
//
// A policy must not assume that page numbers are dense: on a live system they are virtual
// addresses. Numbers are given in groups of 512 neighbours, so that a look-up is a read or two, and
// an array is as large as what is mapped. A group's numbers are given again once nothing of it is
// mapped.
//
//     index.map(range);                  // then resize arrays to index.size()
//     const auto i = index.find(page);   // PageIndex::none: not mapped
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "core/assert.hpp"
#include "core/types.hpp"

namespace tt::track {

class PageIndex {
 public:
  static constexpr std::uint32_t none = UINT32_MAX;
  static constexpr std::uint64_t group_pages = 512;

  /// Pages that are mapped already keep their numbers. `fresh(number)` is called for each other.
  template <typename Fresh>
  void map(PageRange range, Fresh fresh) {
    for (std::uint64_t page = range.first.value; page < range.end().value; ++page) {
      std::uint32_t& group = slot(page / group_pages);
      if (group == none) group = open(page / group_pages);
      if (test(group, page)) continue;
      flip(group, page);
      ++groups_[group].mapped;
      ++pages_;
      fresh(number(group, page));
    }
  }
  void map(PageRange range) {
    map(range, [](std::uint32_t) {});
  }
  /// `leaving(number)` is called for each page that was mapped, while it still has the number.
  template <typename Leaving>
  void unmap(PageRange range, Leaving leaving) {
    for (std::uint64_t page = range.first.value; page < range.end().value; ++page) {
      const std::uint32_t group = group_of(page);
      if (group == none) {
        page |= group_pages - 1;  // nothing of its group is mapped
        continue;
      }
      if (!test(group, page)) continue;
      leaving(number(group, page));
      flip(group, page);
      TT_ASSERT(pages_ > 0 && groups_[group].mapped > 0);
      --pages_;
      if (--groups_[group].mapped > 0) continue;
      slot(page / group_pages) = none;
      free_.push_back(group);
    }
  }
  void unmap(PageRange range) {
    unmap(range, [](std::uint32_t) {});
  }

  [[nodiscard]] std::uint32_t find(PageId page) const {
    const std::uint32_t group = group_of(page.value);
    return group == none || !test(group, page.value) ? none : number(group, page.value);
  }
  [[nodiscard]] bool contains(PageId page) const { return find(page) != none; }
  /// The page with this number.
  [[nodiscard]] PageId page(std::uint32_t number) const {
    return {groups_[number / group_pages].number * group_pages + number % group_pages};
  }
  /// All numbers are below it.
  [[nodiscard]] std::uint32_t size() const {
    return static_cast<std::uint32_t>(groups_.size() * group_pages);
  }
  /// Pages that are mapped.
  [[nodiscard]] std::uint64_t pages() const { return pages_; }

 private:
  static constexpr std::uint64_t leaf_groups = 4096;
  using Leaf = std::array<std::uint32_t, leaf_groups>;
  struct Group {
    std::uint64_t number = 0;  // of its first page, over group_pages
    std::uint32_t mapped = 0;
    std::array<std::uint64_t, group_pages / 64> bits{};
  };

  static std::uint32_t number(std::uint32_t group, std::uint64_t page) {
    return static_cast<std::uint32_t>(group * group_pages + page % group_pages);
  }
  [[nodiscard]] bool test(std::uint32_t group, std::uint64_t page) const {
    return (groups_[group].bits[page % group_pages / 64] >> (page % 64) & 1U) != 0;
  }
  void flip(std::uint32_t group, std::uint64_t page) {
    groups_[group].bits[page % group_pages / 64] ^= std::uint64_t{1} << (page % 64);
  }
  [[nodiscard]] const Leaf* leaf(std::uint64_t at) const {
    if (at == last_at_) return last_;
    const auto found = leaves_.find(at);
    if (found == leaves_.end()) return nullptr;
    last_at_ = at;
    return last_ = found->second.get();
  }
  [[nodiscard]] std::uint32_t group_of(std::uint64_t page) const {
    const std::uint64_t group = page / group_pages;
    const Leaf* at = leaf(group / leaf_groups);
    return at == nullptr ? none : (*at)[group % leaf_groups];
  }
  std::uint32_t& slot(std::uint64_t group) {
    auto& at = leaves_[group / leaf_groups];
    if (!at) {
      at = std::make_unique<Leaf>();
      at->fill(none);
    }
    return (*at)[group % leaf_groups];
  }
  std::uint32_t open(std::uint64_t number) {
    if (free_.empty()) {
      free_.push_back(static_cast<std::uint32_t>(groups_.size()));
      groups_.emplace_back();
    }
    const std::uint32_t group = free_.back();
    free_.pop_back();
    groups_[group] = {.number = number};
    return group;
  }

  std::unordered_map<std::uint64_t, std::unique_ptr<Leaf>> leaves_;
  mutable std::uint64_t last_at_ = UINT64_MAX;  // the leaf that was last read
  mutable const Leaf* last_ = nullptr;
  std::vector<Group> groups_;
  std::vector<std::uint32_t> free_;  // groups
  std::uint64_t pages_ = 0;
};

}  // namespace tt::track
