// The innermost loop of the simulator: how many accesses of a segment went to the slow tier.
//
// One bit per managed page says in which tier it is; the loop gathers bits and adds up counts. All
// variants add integers, so the result is the same whatever instructions the machine has.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#if defined(__AVX2__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

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
/// variant without pages in flight looks at one bit per entry and has no branch for the other.
template <bool InFlight>
[[nodiscard]] inline TierSums gather(std::span<const std::uint32_t> pages,
                                     std::span<const std::uint16_t> counts, unsigned shift,
                                     const std::uint32_t* slow,
                                     [[maybe_unused]] const std::uint32_t* moving) {
  TierSums sums;
  const std::size_t size = pages.size();
  std::size_t i = 0;
#if defined(__AVX512F__) && defined(__AVX512BW__)
  constexpr std::size_t width = 16;
  // A 32-bit lane takes 2^16 counts below 2^16 before it could overflow.
  constexpr std::size_t burst = width << 16;
  const __m128i by = _mm_cvtsi32_si128(static_cast<int>(shift));
  const __m512i one = _mm512_set1_epi32(1);
  while (size - i >= width) {
    const std::size_t end = i + std::min(burst, (size - i) / width * width);
    __m512i in_slow = _mm512_setzero_si512();
    [[maybe_unused]] __m512i leaving_slow = _mm512_setzero_si512();
    [[maybe_unused]] __m512i leaving_fast = _mm512_setzero_si512();
    for (; i < end; i += width) {
      const __m512i page = _mm512_srl_epi32(_mm512_loadu_si512(pages.data() + i), by);
      const __m512i word = _mm512_srli_epi32(page, 5);
      const __m512i count = _mm512_cvtepu16_epi32(
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(counts.data() + i)));
      // Rotating right by the page number (its low five bits) brings the page's bit to place 0.
      const __mmask16 at_slow = _mm512_test_epi32_mask(
          _mm512_rorv_epi32(_mm512_i32gather_epi32(word, slow, 4), page), one);
      in_slow = _mm512_mask_add_epi32(in_slow, at_slow, in_slow, count);
      if constexpr (InFlight) {
        const __mmask16 moves = _mm512_test_epi32_mask(
            _mm512_rorv_epi32(_mm512_i32gather_epi32(word, moving, 4), page), one);
        leaving_slow = _mm512_mask_add_epi32(leaving_slow, static_cast<__mmask16>(moves & at_slow),
                                             leaving_slow, count);
        leaving_fast = _mm512_mask_add_epi32(leaving_fast, static_cast<__mmask16>(moves & ~at_slow),
                                             leaving_fast, count);
      }
    }
    const auto total = [](__m512i lanes) {
      return static_cast<std::uint64_t>(_mm512_reduce_add_epi64(_mm512_add_epi64(
          _mm512_and_si512(lanes, _mm512_set1_epi64(0xffffffff)), _mm512_srli_epi64(lanes, 32))));
    };
    sums.slow += total(in_slow);
    if constexpr (InFlight) {
      sums.in_flight[index(Tier::slow)] += total(leaving_slow);
      sums.in_flight[index(Tier::fast)] += total(leaving_fast);
    }
  }
#elif defined(__AVX2__)
  constexpr std::size_t width = 8;
  constexpr std::size_t burst = width << 16;
  const __m128i by = _mm_cvtsi32_si128(static_cast<int>(shift));
  const __m256i low = _mm256_set1_epi32(31);
  // All ones where the page's bit is set: its bit is shifted to the sign and spread.
  const auto bit = [&](const std::uint32_t* words, __m256i page) {
    const __m256i found =
        _mm256_i32gather_epi32(reinterpret_cast<const int*>(words), _mm256_srli_epi32(page, 5), 4);
    const __m256i left = _mm256_andnot_si256(page, low);  // 31 - page % 32
    return _mm256_srai_epi32(_mm256_sllv_epi32(found, left), 31);
  };
  while (size - i >= width) {
    const std::size_t end = i + std::min(burst, (size - i) / width * width);
    __m256i in_slow = _mm256_setzero_si256();
    [[maybe_unused]] __m256i leaving_slow = _mm256_setzero_si256();
    [[maybe_unused]] __m256i leaving_fast = _mm256_setzero_si256();
    for (; i < end; i += width) {
      const __m256i page = _mm256_srl_epi32(
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(pages.data() + i)), by);
      const __m256i count = _mm256_cvtepu16_epi32(
          _mm_loadu_si128(reinterpret_cast<const __m128i*>(counts.data() + i)));
      const __m256i at_slow = bit(slow, page);
      in_slow = _mm256_add_epi32(in_slow, _mm256_and_si256(at_slow, count));
      if constexpr (InFlight) {
        const __m256i moved = _mm256_and_si256(bit(moving, page), count);
        leaving_slow = _mm256_add_epi32(leaving_slow, _mm256_and_si256(at_slow, moved));
        leaving_fast = _mm256_add_epi32(leaving_fast, _mm256_andnot_si256(at_slow, moved));
      }
    }
    const auto total = [](__m256i lanes) {
      const __m256i pairs = _mm256_add_epi64(
          _mm256_and_si256(lanes, _mm256_set1_epi64x(0xffffffff)), _mm256_srli_epi64(lanes, 32));
      const __m128i halves =
          _mm_add_epi64(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
      return static_cast<std::uint64_t>(_mm_extract_epi64(halves, 0)) +
             static_cast<std::uint64_t>(_mm_extract_epi64(halves, 1));
    };
    sums.slow += total(in_slow);
    if constexpr (InFlight) {
      sums.in_flight[index(Tier::slow)] += total(leaving_slow);
      sums.in_flight[index(Tier::fast)] += total(leaving_fast);
    }
  }
#endif
  for (; i < size; ++i) {
    const std::uint32_t page = pages[i] >> shift;
    const std::uint64_t count = counts[i];
    const std::uint64_t at_slow = slow[page / 32] >> (page % 32) & 1U;
    sums.slow += count & -at_slow;
    if constexpr (InFlight) {
      const std::uint64_t moves = moving[page / 32] >> (page % 32) & 1U;
      sums.in_flight[at_slow] += count & -moves;
    }
  }
  return sums;
}

}  // namespace tt::sim
