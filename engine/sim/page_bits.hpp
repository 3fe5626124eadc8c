// SPDX-License-Identifier: MIT

// A bit per managed page.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tt::sim {

/// Ranges are handled by words: a footprint of 64 Mi pages is placed in milliseconds.
class PageBits {
 public:
  explicit PageBits(std::uint64_t pages = 0) : words_((pages + 31) / 32) {}
  [[nodiscard]] bool test(std::uint64_t page) const {
    return (words_[page / 32] >> (page % 32) & 1U) != 0;
  }
  void set(std::uint64_t page) { words_[page / 32] |= 1U << (page % 32); }
  void clear(std::uint64_t page) { words_[page / 32] &= ~(1U << (page % 32)); }

  [[nodiscard]] std::uint64_t count(std::uint64_t first, std::uint64_t pages) const {
    std::uint64_t sum = 0;
    each_word(first, pages, [&](std::size_t word, std::uint32_t mask) {
      sum += static_cast<std::uint64_t>(std::popcount(words_[word] & mask));
    });
    return sum;
  }
  [[nodiscard]] std::uint64_t count() const { return count(0, words_.size() * 32); }
  void set(std::uint64_t first, std::uint64_t pages) {
    each_word(first, pages, [&](std::size_t word, std::uint32_t mask) { words_[word] |= mask; });
  }
  void clear(std::uint64_t first, std::uint64_t pages) {
    each_word(first, pages, [&](std::size_t word, std::uint32_t mask) { words_[word] &= ~mask; });
  }
  [[nodiscard]] bool empty() const { return words_.empty(); }
  [[nodiscard]] const std::uint32_t* words() const { return words_.data(); }
  [[nodiscard]] std::uint32_t* words() { return words_.data(); }
  [[nodiscard]] std::uint32_t word(std::uint64_t page) const { return words_[page / 32]; }

  /// Calls visit(i, mask) for each word i that holds pages of the range, with a mask of their bits.
  template <typename Visit>
  static void each_word(std::uint64_t first, std::uint64_t pages, Visit visit) {
    for (const std::uint64_t end = first + pages; first < end;) {
      const std::uint64_t from = first % 32;
      const std::uint64_t bits = std::min(32 - from, end - first);
      visit(first / 32, static_cast<std::uint32_t>(((std::uint64_t{1} << bits) - 1) << from));
      first += bits;
    }
  }

 private:
  std::vector<std::uint32_t> words_;
};

}  // namespace tt::sim
