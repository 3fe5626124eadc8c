// SPDX-License-Identifier: MIT

// QuadLine: four counters in one 64-byte line, the fast path of the blocked filter at its usual
// k = 4. One portable version and one for AVX2, chosen at run time; both give the same bytes.
//
// A line is eight 64-bit words. Slice i of the four is words i and i + 4, so that the low half of
// the line holds one word of each slice and the high half the other, and a vector of four words can
// pick each slice's word without a gather.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "core/assert.hpp"
#include "core/isa.hpp"
#include "track/lines.hpp"

#if defined(TT_X86_VARIANTS)
#include <immintrin.h>
#endif

namespace tt::track {

/// Where the counters of a page are: a line, and the positions within it from the top bit of
/// `digits` down.
struct LineKey {
  std::uint64_t line;
  std::uint64_t digits;
};

/// Counters of Bits bits. A digit is one bit for the word, then the counter within the word.
template <unsigned Bits>
class QuadLine {
 public:
  static constexpr std::uint32_t max = (1U << Bits) - 1;

  /// Least of the page's counters.
  static std::uint32_t least(std::uint8_t* base, LineKey key) {
    std::uint32_t result = max;
    for (unsigned i = 0; i < 4; ++i) result = std::min(result, read(place(base, key, i)));
    return result;
  }

  /// For each key in turn adds amount(index) to its page: raises the counters below the new least
  /// (Conservative), or all four; they saturate at max.
  template <bool Conservative, typename Amount>
  static void raise(std::uint8_t* base, std::span<const LineKey> keys, Amount amount) {
#if defined(TT_X86_VARIANTS)
    if (isa() >= Isa::avx2) return raise_avx2<Conservative>(base, keys, amount);
#endif
    raise_portable<Conservative>(base, keys, amount);
  }

  template <bool Conservative, typename Amount>
  static void raise_portable(std::uint8_t* base, std::span<const LineKey> keys, Amount amount) {
    for (std::size_t index = 0; index < keys.size(); ++index) {
      const std::uint32_t step = std::min<std::uint32_t>(amount(index), max);
      Place places[4];
      std::uint32_t values[4];
      for (unsigned i = 0; i < 4; ++i) {
        places[i] = place(base, keys[index], i);
        values[i] = read(places[i]);
      }
      if constexpr (Conservative) {
        const std::uint32_t low =
            std::min(std::min(values[0], values[1]), std::min(values[2], values[3]));
        const std::uint32_t target = std::min(low + step, max);
        for (unsigned i = 0; i < 4; ++i) add(places[i], std::max(values[i], target) - values[i]);
      } else {
        for (unsigned i = 0; i < 4; ++i) add(places[i], std::min(step, max - values[i]));
      }
    }
  }

#if defined(TT_X86_VARIANTS)
  template <bool Conservative, typename Amount>
  [[gnu::target("avx2"), gnu::noinline]] static void raise_avx2(std::uint8_t* base,
                                                                std::span<const LineKey> keys,
                                                                Amount amount) {
    constexpr auto d = static_cast<long long>(digit_bits);
    const __m256i most = _mm256_set1_epi64x(max);
    const __m256i none = _mm256_setzero_si256();
    for (std::size_t index = 0; index < keys.size(); ++index) {
      auto* const words = reinterpret_cast<__m256i*>(base + keys[index].line * line_bytes);
      const __m256i low = _mm256_load_si256(words);
      const __m256i high = _mm256_load_si256(words + 1);
      // Each lane has its slice's digit on top; the sign bit chooses between low and high word.
      const __m256i digit =
          _mm256_sllv_epi64(_mm256_set1_epi64x(static_cast<long long>(keys[index].digits)),
                            _mm256_set_epi64x(3 * d, 2 * d, d, 0));
      const __m256d in_high = _mm256_castsi256_pd(digit);
      const __m256i shift =
          _mm256_and_si256(_mm256_srli_epi64(digit, 57), _mm256_set1_epi64x(shift_mask));
      const __m256i word = _mm256_castpd_si256(
          _mm256_blendv_pd(_mm256_castsi256_pd(low), _mm256_castsi256_pd(high), in_high));
      const __m256i value = _mm256_and_si256(_mm256_srlv_epi64(word, shift), most);
      // Values fit in 16 bits and the rest of a lane is zero, so 16-bit operations do.
      const __m256i step = _mm256_set1_epi64x(std::min<std::uint32_t>(amount(index), max));
      __m256i delta;
      if constexpr (Conservative) {
        __m128i least =
            _mm_min_epu16(_mm256_castsi256_si128(value), _mm256_extracti128_si256(value, 1));
        least = _mm_min_epu16(least, _mm_unpackhi_epi64(least, least));
        const __m256i target =
            _mm256_min_epu16(_mm256_adds_epu16(_mm256_broadcastq_epi64(least), step), most);
        delta = _mm256_subs_epu16(target, value);
      } else {
        delta = _mm256_min_epu16(step, _mm256_sub_epi64(most, value));
      }
      const __m256d change = _mm256_castsi256_pd(_mm256_sllv_epi64(delta, shift));
      const __m256d zero = _mm256_castsi256_pd(none);
      const __m256i to_low = _mm256_castpd_si256(_mm256_blendv_pd(change, zero, in_high));
      const __m256i to_high = _mm256_castpd_si256(_mm256_blendv_pd(zero, change, in_high));
      _mm256_store_si256(words, _mm256_add_epi64(low, to_low));
      _mm256_store_si256(words + 1, _mm256_add_epi64(high, to_high));
    }
  }
#endif

 private:
  /// A word has 64 / Bits counters.
  static constexpr unsigned digit_bits = 1 + 6 - static_cast<unsigned>(std::countr_zero(Bits));
  /// Of the six bits of a shift within a word, those that name a counter.
  static constexpr std::uint64_t shift_mask = 64 - Bits;

  struct Place {
    std::uint8_t* word;
    unsigned shift;
  };
  static Place place(std::uint8_t* base, LineKey key, unsigned i) {
    const std::uint64_t digit = key.digits << (i * digit_bits);
    return {base + key.line * line_bytes + 8 * i + (digit >> 58 & 32),
            static_cast<unsigned>(digit >> 57 & shift_mask)};
  }
  static std::uint32_t read(Place place) {
    std::uint64_t word;
    std::memcpy(&word, place.word, sizeof word);
    return static_cast<std::uint32_t>(word >> place.shift) & max;
  }
  static void add(Place place, std::uint32_t delta) {
    TT_ASSERT(read(place) + delta <= max);  // else it would spill into the next counter
    std::uint64_t word;
    std::memcpy(&word, place.word, sizeof word);
    word += std::uint64_t{delta} << place.shift;
    std::memcpy(place.word, &word, sizeof word);
  }
};

}  // namespace tt::track
