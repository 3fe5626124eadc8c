// The innermost loop of the simulator: how many accesses of a segment went to the slow tier.
//
// One bit per managed page says in which tier it is; the loop gathers bits and adds up counts. All
// variants (core/isa.hpp) add integers, so the result is the same whatever the processor has.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/types.hpp"

namespace tt::sim {

/// A bit per managed page. Ranges are handled by words: a footprint of 64 Mi pages is placed in
/// milliseconds.
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
  void set(std::uint64_t first, std::uint64_t pages) {
    each_word(first, pages, [&](std::size_t word, std::uint32_t mask) { words_[word] |= mask; });
  }
  void clear(std::uint64_t first, std::uint64_t pages) {
    each_word(first, pages, [&](std::size_t word, std::uint32_t mask) { words_[word] &= ~mask; });
  }
  [[nodiscard]] const std::uint32_t* words() const { return words_.data(); }
  [[nodiscard]] std::uint32_t word(std::uint64_t page) const { return words_[page / 32]; }

 private:
  template <typename Visit>
  static void each_word(std::uint64_t first, std::uint64_t pages, Visit visit) {
    for (const std::uint64_t end = first + pages; first < end;) {
      const std::uint64_t from = first % 32;
      const std::uint64_t bits = std::min(32 - from, end - first);
      visit(first / 32, static_cast<std::uint32_t>(((std::uint64_t{1} << bits) - 1) << from));
      first += bits;
    }
  }
  std::vector<std::uint32_t> words_;
};

/// First touches of a range: pages that are not there yet go to `wanted` as long as it has room for
/// them, and else to the other tier. Whole runs where nothing is in the way; page by page
/// otherwise. Updates the bits and `free`, the free pages of the two tiers.
inline void first_touch(PageBits& present, PageBits& slow, std::uint64_t first, std::uint64_t pages,
                        Tier wanted, std::array<std::uint64_t, tier_count>& free) {
  const auto put = [&](std::uint64_t page, std::uint64_t count, Tier tier) {
    free[index(tier)] -= count;
    present.set(page, count);
    if (tier == Tier::slow) slow.set(page, count);
  };
  constexpr std::uint64_t run = 512;
  for (const std::uint64_t end = first + pages; first < end;) {
    const std::uint64_t count = std::min(run, end - first);
    const Tier tier = free[index(wanted)] > 0 ? wanted : other(wanted);
    if (free[index(tier)] >= count && present.count(first, count) == 0) {
      put(first, count, tier);
    } else {
      for (std::uint64_t page = first; page < first + count; ++page)
        if (!present.test(page)) put(page, 1, free[index(wanted)] > 0 ? wanted : other(wanted));
    }
    first += count;
  }
}

/// Accesses of a segment in the slow tier and, when pages are in flight, to those pages, by the
/// tier that they are leaving.
struct TierSums {
  std::uint64_t slow = 0;
  std::uint64_t in_flight[tier_count] = {0, 0};
};

/// Adds the counts of base pages by the tier of their managed page (base page >> shift). The
/// variant without pages in flight looks at one bit per entry and has no branch for the other;
/// `moving` is not read then.
template <bool InFlight>
[[nodiscard]] TierSums gather(std::span<const std::uint32_t> pages,
                              std::span<const std::uint16_t> counts, unsigned shift,
                              const std::uint32_t* slow, const std::uint32_t* moving);

}  // namespace tt::sim
