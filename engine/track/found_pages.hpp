// SPDX-License-Identifier: MIT

// FoundPages: numbers for mapped pages (page_index.hpp), and which of these pages have been found
// in memory since: a policy is told what is mapped, and not what is touched.
//
//     found.map(range);                             // then resize arrays to found.index().size()
//     found.look(memory, share, [&](auto i, Tier tier) { ... found.enter(i); });
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "core/seam.hpp"
#include "track/page_index.hpp"

namespace tt::track {

class FoundPages {
 public:
  static constexpr std::uint32_t none = PageIndex::none;

  [[nodiscard]] const PageIndex& index() const { return index_; }

  void map(PageRange range) {
    index_.map(range, [&](std::uint32_t i) {
      if (i >= found_.size()) {
        found_.resize(index_.size());
        missing_in_.resize(index_.size() / PageIndex::group_pages);
      }
      TT_ASSERT(!found_[i]);
      ++missing_in_[i / PageIndex::group_pages];
      ++missing_;
    });
  }
  /// `leaving(number)` is called for each page that was found.
  template <typename Leaving>
  void unmap(PageRange range, Leaving leaving) {
    index_.unmap(range, [&](std::uint32_t i) {
      if (found_[i]) {
        leaving(i);
        lose(i);
      }
      --missing_in_[i / PageIndex::group_pages];
      --missing_;
    });
  }

  /// Of a mapped page's number, or none.
  [[nodiscard]] bool has(std::uint32_t i) const { return i != none && found_[i]; }
  /// The page is there. False if that was known.
  bool enter(std::uint32_t i) {
    if (found_[i]) return false;
    found_[i] = true;
    --missing_in_[i / PageIndex::group_pages];
    --missing_;
    return true;
  }
  /// The page, which was found, is not there any more.
  void lose(std::uint32_t i) {
    TT_ASSERT(found_[i]);
    found_[i] = false;
    ++missing_in_[i / PageIndex::group_pages];
    ++missing_;
  }

  /// Looks for pages that are there and were not found yet, in the whole of what is mapped, or a
  /// part of about `share` of it, in order of addresses within 512 pages; `visit(number, tier)`.
  /// Not charged: a kernel knows.
  template <typename Visit>
  void look(const Memory& memory, double share, Visit visit) {
    const std::size_t groups = missing_in_.size();
    const auto most = static_cast<std::size_t>(std::ceil(share * static_cast<double>(groups)));
    for (std::size_t n = 0; n < most && missing_ > 0; ++n, ++cursor_) {
      if (cursor_ >= groups) cursor_ = 0;
      if (missing_in_[cursor_] == 0) continue;
      const auto first = static_cast<std::uint32_t>(cursor_ * PageIndex::group_pages);
      where_.resize(PageIndex::group_pages);
      memory.residency(index_.page(first), where_);
      for (std::uint32_t i = first; i < first + PageIndex::group_pages; ++i) {
        const Residency where = where_[i - first];
        if (found_[i] || where == Residency::absent || !index_.contains(index_.page(i))) continue;
        visit(i, static_cast<Tier>(where));
      }
    }
  }

 private:
  PageIndex index_;
  std::vector<bool> found_;
  std::vector<std::uint16_t> missing_in_;  // pages of each group that are mapped and not found
  std::uint64_t missing_ = 0;
  std::size_t cursor_ = 0;        // group that look() comes to next
  std::vector<Residency> where_;  // scratch
};

}  // namespace tt::track
