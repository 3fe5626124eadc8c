// SPDX-License-Identifier: MIT

// GhostLists: the queues of caching algorithms such as ARC (FAST'03) and 2Q (VLDB'94), of pages
// that are in the cache and of ghosts, of which only the name is remembered.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/assert.hpp"
#include "core/page_map.hpp"
#include "core/types.hpp"

namespace tt::track {

/// `Lists` lists, each in the order in which pages came; a page is on at most one of them. All of
/// them are threaded through one array of entries.
template <unsigned Lists>
class GhostLists {
 public:
  static constexpr unsigned none = Lists;

  GhostLists() : entries_(Lists) {
    for (std::uint32_t list = 0; list < Lists; ++list) entries_[list] = {{}, list, list, list};
  }

  /// The list that the page is on, or none.
  [[nodiscard]] unsigned where(PageId page) const {
    const std::uint32_t at = index_.get(page);
    return at == 0 ? none : entries_[at].list;
  }
  /// Makes the page the newest of a list. It leaves the one that it is on.
  void put(unsigned list, PageId page) {
    TT_ASSERT(list < Lists);
    std::uint32_t& at = index_[page];
    if (at != 0) {
      unlink(at);
    } else if (!free_.empty()) {
      at = free_.back();
      free_.pop_back();
    } else {
      at = static_cast<std::uint32_t>(entries_.size());
      entries_.emplace_back();
    }
    const std::uint32_t newest = entries_[list].older;
    entries_[at] = {page, newest, list, list};
    entries_[newest].newer = entries_[list].older = at;
    ++size_[list];
  }
  /// Takes the page off its list, if it is on one.
  void remove(PageId page) {
    if (where(page) == none) return;
    std::uint32_t& at = index_[page];
    unlink(at);
    free_.push_back(at);
    at = 0;
  }
  void remove(PageRange range) {
    index_.each_leaf(range, [&](PageId, std::span<std::uint32_t> indices) {
      for (std::uint32_t& at : indices) {
        if (at == 0) continue;
        unlink(at);
        free_.push_back(at);
        at = 0;
      }
    });
    TT_ASSERT_FULL(consistent());
  }
  /// The page that came first; the list must not be empty.
  [[nodiscard]] PageId oldest(unsigned list) const {
    TT_ASSERT(size_[list] > 0);
    return entries_[entries_[list].newer].page;
  }
  [[nodiscard]] std::uint64_t size(unsigned list) const { return size_[list]; }
  /// Whether each list is a ring of as many pages as it says, and no entry is lost.
  [[nodiscard]] bool consistent() const {
    std::uint64_t linked = 0;
    for (std::uint32_t list = 0; list < Lists; ++list) {
      std::uint64_t size = 0;
      for (std::uint32_t at = entries_[list].newer; at != list; at = entries_[at].newer) {
        if (entries_[at].list != list || entries_[entries_[at].newer].older != at ||
            index_.get(entries_[at].page) != at || ++size > size_[list])
          return false;
      }
      if (size != size_[list]) return false;
      linked += size;
    }
    return linked + free_.size() + Lists == entries_.size();
  }
  [[nodiscard]] std::uint64_t bytes() const {
    return entries_.size() * sizeof(Entry) + free_.capacity() * sizeof(free_[0]) + index_.bytes();
  }

 private:
  /// The first `Lists` entries close the lists to rings: older than all pages, and newer than all.
  struct Entry {
    PageId page;
    std::uint32_t older = 0, newer = 0;  // its neighbours
    std::uint32_t list = 0;
  };
  void unlink(std::uint32_t at) {
    const Entry& entry = entries_[at];
    TT_ASSERT(at >= Lists && size_[entry.list] > 0);
    TT_ASSERT(entries_[entry.newer].older == at && entries_[entry.older].newer == at);
    entries_[entry.newer].older = entry.older;
    entries_[entry.older].newer = entry.newer;
    --size_[entry.list];
  }

  std::vector<Entry> entries_;
  std::vector<std::uint32_t> free_;
  std::array<std::uint64_t, Lists> size_{};
  PageMap<std::uint32_t> index_;  // where a page's entry is; 0: it has none
};

}  // namespace tt::track
