// SPDX-License-Identifier: MIT

// Scores: a sum for each page that has been seen, for as many pages as the table holds.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/page_map.hpp"
#include "core/types.hpp"

namespace tt::track {

class Scores {
 public:
  /// Holds the first `most` pages that come. A decay multiplies all scores by `kept`.
  Scores(double most, double kept) : most_(most), kept_(static_cast<float>(kept)) {}

  /// Adds to a page's score and returns it; 0 for a page that finds no place any more.
  double add(PageId page, double amount) {
    if (pages_.get(page).decays == 0) {
      if (static_cast<double>(size_) >= most_) return 0;
      ++size_;
      pages_[page].decays = decays_;
    }
    Entry& entry = pages_[page];
    for (; entry.decays < decays_; ++entry.decays) entry.score *= kept_;
    entry.score += static_cast<float>(amount);
    return entry.score;
  }
  /// All scores decay; each when it is looked at next.
  void decay() { ++decays_; }
  void erase(PageRange range) {
    pages_.each_leaf(range, [&](PageId, std::span<Entry> entries) {
      for (Entry& entry : entries) {
        if (entry.decays != 0) --size_;
        entry = {};
      }
    });
  }
  [[nodiscard]] double get(PageId page) const { return pages_.get(page).score; }
  /// Pages in the table.
  [[nodiscard]] std::uint64_t size() const { return size_; }

 private:
  struct Entry {
    float score = 0;
    std::uint32_t decays = 0;  // that it has seen, and one; 0: no entry
  };
  double most_;
  float kept_;
  std::uint32_t decays_ = 1;
  std::uint64_t size_ = 0;
  PageMap<Entry> pages_;
};

}  // namespace tt::track
