// SPDX-License-Identifier: MIT

// LLC filter: which of a kernel's touches reach memory.
//
// A set-associative cache of 64-byte lines with exact LRU, kept as one 64-byte line of 16 tags per
// set in order of recency, so that a touch is one load, one compare, one rotation and one store.
// Page frames are placed at random, as an operating system does: a page's 64 lines fall into
// consecutive sets from a start that is a hash of the page number. So arrays at power-of-two
// distances do not conflict in a cache that is scaled down.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <stdexcept>
#include <vector>

#include "core/isa.hpp"
#include "core/types.hpp"
#include "trace/stream.hpp"

#if defined(TT_X86_VARIANTS)
#include <immintrin.h>
#endif

namespace tt::trace {

/// One set: tags from most to least recently used. A tag is (line number << 1) | dirty; an empty
/// way holds `empty`, which is no line's tag.
struct alignas(64) LlcSet {
  static constexpr unsigned ways = 16;
  static constexpr std::uint32_t empty = 0xffffffff;
  std::array<std::uint32_t, ways> tags;

  /// What a touch did. `dirtied`: a store made the line dirty, so it will be written back once.
  struct Touch {
    bool hit;
    bool dirtied;
  };

  /// The definition; touch_avx2() is the same, faster. `last` is the number of ways in use minus
  /// one.
  Touch touch_portable(std::uint32_t line, bool store, unsigned last) {
    const std::uint32_t key = line << 1;
    unsigned at = 0;
    while (at < last && (tags[at] & ~1u) != key) ++at;
    const std::uint32_t found = tags[at];
    const bool hit = (found & ~1u) == key && found != empty;
    const std::uint32_t before = hit ? found : key;
    std::memmove(&tags[1], tags.data(), at * sizeof(tags[0]));
    tags[0] = before | static_cast<std::uint32_t>(store);
    return {hit, store && (before & 1) == 0};
  }

#if defined(TT_X86_VARIANTS)
  [[gnu::target("avx2")]] Touch touch_avx2(std::uint32_t line, bool store, unsigned last) {
    const std::uint32_t key = line << 1;
    auto* const memory = reinterpret_cast<__m256i*>(tags.data());
    const __m256i low = _mm256_load_si256(memory);
    const __m256i high = _mm256_load_si256(memory + 1);
    const __m256i keys = _mm256_set1_epi32(static_cast<int>(key));
    const __m256i clean = _mm256_set1_epi32(~1);
    const __m256i low_found = _mm256_cmpeq_epi32(_mm256_and_si256(low, clean), keys);
    const __m256i high_found = _mm256_cmpeq_epi32(_mm256_and_si256(high, clean), keys);
    const unsigned found =
        static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(low_found))) |
        static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(high_found))) << 8;
    const bool hit = found != 0;
    const auto at = static_cast<unsigned>(std::countr_zero(found | 1u << last));
    const std::uint32_t before = hit ? tags[at] : key;
    // Ways 0 to `at` move one place back, and the line becomes way 0.
    const __m256i rotate = _mm256_setr_epi32(7, 0, 1, 2, 3, 4, 5, 6);
    const __m256i low_rotated = _mm256_permutevar8x32_epi32(low, rotate);
    const __m256i high_rotated = _mm256_permutevar8x32_epi32(high, rotate);
    const __m256i first =
        _mm256_set1_epi32(static_cast<int>(before | static_cast<std::uint32_t>(store)));
    const __m256i low_moved = _mm256_blend_epi32(low_rotated, first, 1);
    const __m256i high_moved = _mm256_blend_epi32(high_rotated, low_rotated, 1);
    const __m256i beyond = _mm256_set1_epi32(static_cast<int>(at) + 1);
    const __m256i in_low = _mm256_cmpgt_epi32(beyond, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    const __m256i in_high =
        _mm256_cmpgt_epi32(beyond, _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15));
    _mm256_store_si256(memory, _mm256_blendv_epi8(low, low_moved, in_low));
    _mm256_store_si256(memory + 1, _mm256_blendv_epi8(high, high_moved, in_high));
    return {hit, store && (before & 1) == 0};
  }
#endif
};

class LlcFilter {
 public:
  /// Pages that tags can name: 128 GiB of simulated address space, less the one whose last tag
  /// means `empty`.
  static constexpr std::uint64_t max_pages = (1u << 25) - 1;

  /// A cache of `bytes` (at least one set) with `ways` 1 to 16.
  LlcFilter(double bytes, unsigned ways) : last_(ways - 1), isa_(isa()) {
    if (ways < 1 || ways > LlcSet::ways)
      throw std::invalid_argument("the cache filter has 1 to 16 ways");
    const double sets = bytes / static_cast<double>(line_bytes * ways);
    sets_.resize(static_cast<std::size_t>(std::clamp(sets + 0.5, 1.0, 0x1p31)));
    for (LlcSet& set : sets_) set.tags.fill(LlcSet::empty);
  }

  /// Of a run of touches: lines that were fetched, and lines that a store made dirty (fetched or
  /// not): each is written back once.
  struct Count {
    std::uint32_t missed = 0;
    std::uint32_t dirtied = 0;
  };

  /// Touches lines [first, first + count) of one page, in order.
  Count touch(std::uint32_t page, std::uint32_t first, std::uint32_t count, bool store) {
#if defined(TT_X86_VARIANTS)
    if (isa_ >= Isa::avx2)
      return store ? run_avx2<true>(page, first, count) : run_avx2<false>(page, first, count);
#endif
    return store ? run<Portable, true>(page, first, count)
                 : run<Portable, false>(page, first, count);
  }

  [[nodiscard]] std::size_t sets() const { return sets_.size(); }

 private:
  struct Portable {
    static LlcSet::Touch touch(LlcSet& set, std::uint32_t line, bool store, unsigned last) {
      return set.touch_portable(line, store, last);
    }
  };
#if defined(TT_X86_VARIANTS)
  struct Avx2 {
    [[gnu::target("avx2")]] static LlcSet::Touch touch(LlcSet& set, std::uint32_t line, bool store,
                                                       unsigned last) {
      return set.touch_avx2(line, store, last);
    }
  };
  /// The loop becomes part of this function, and only then may the compiler inline AVX2's touch.
  template <bool store>
  [[gnu::target("avx2")]] Count run_avx2(std::uint32_t page, std::uint32_t first,
                                         std::uint32_t count) {
    return run<Avx2, store>(page, first, count);
  }
#endif

  template <typename Variant, bool store>
  [[gnu::always_inline]] Count run(std::uint32_t page, std::uint32_t first, std::uint32_t count) {
    const std::size_t sets = sets_.size();
    std::size_t set = (((mix64(page) >> 32) * sets) >> 32) + first;
    while (set >= sets) set -= sets;
    const std::uint32_t line = page * static_cast<std::uint32_t>(page_lines) + first;
    Count counted;
    for (std::uint32_t i = 0; i < count; ++i) {
      const LlcSet::Touch touch = Variant::touch(sets_[set], line + i, store, last_);
      counted.missed += static_cast<std::uint32_t>(!touch.hit);
      if constexpr (store) counted.dirtied += static_cast<std::uint32_t>(touch.dirtied);
      if (++set == sets) set = 0;
    }
    return counted;
  }

  unsigned last_;
  Isa isa_;
  std::vector<LlcSet> sets_;
};

}  // namespace tt::trace
