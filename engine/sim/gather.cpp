// SPDX-License-Identifier: MIT

// The loop, once per instruction set. Each vector variant takes the whole vectors and leaves the
// rest, a few entries, to the portable one.
#include "sim/gather.hpp"

#include "core/isa.hpp"

#if defined(TT_X86_VARIANTS)
#include <immintrin.h>
#endif

namespace tt::sim {
namespace {

struct Entries {
  const std::uint32_t* pages;
  const std::uint16_t* counts;
  std::size_t size;
  unsigned shift;
  const std::uint32_t* slow;
  const std::uint32_t* armed;
  std::uint32_t* tripped;
};

template <bool Armed>
void add_portable(const Entries& in, std::size_t i, Gathered& found) {
  for (; i < in.size; ++i) {
    const std::uint32_t page = in.pages[i] >> in.shift;
    const std::uint64_t count = in.counts[i];
    const std::uint64_t at_slow = in.slow[page / 32] >> (page % 32) & 1U;
    found.slow += count & -at_slow;
    if constexpr (Armed) {
      if ((in.armed[page / 32] >> (page % 32) & 1U) != 0)
        in.tripped[found.tripped++] = static_cast<std::uint32_t>(i);
    }
  }
}

/// Notes entry first + j for each bit j of `lanes`.
[[maybe_unused]] inline void note(unsigned lanes, std::size_t first, const Entries& in,
                                  Gathered& found) {
  for (; lanes != 0; lanes &= lanes - 1)
    in.tripped[found.tripped++] =
        static_cast<std::uint32_t>(first) + static_cast<std::uint32_t>(std::countr_zero(lanes));
}

#if defined(TT_X86_VARIANTS)

// GCC 12 warns about the deliberately undefined operands in its own AVX-512 headers.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#define TT_AVX2 [[gnu::target("avx2")]]
#define TT_AVX512 [[gnu::target("avx512f,avx512bw,avx512vl")]]

/// A 32-bit lane can add up 2^16 counts below 2^16 without overflow.
constexpr std::size_t most_per_lane = std::size_t{1} << 16;

/// All ones where the page's bit is set: its bit is shifted to the sign and spread.
TT_AVX2 inline __m256i bit_avx2(const std::uint32_t* words, __m256i page) {
  const __m256i found =
      _mm256_i32gather_epi32(reinterpret_cast<const int*>(words), _mm256_srli_epi32(page, 5), 4);
  const __m256i left = _mm256_andnot_si256(page, _mm256_set1_epi32(31));  // 31 - page % 32
  return _mm256_srai_epi32(_mm256_sllv_epi32(found, left), 31);
}

TT_AVX2 inline std::uint64_t total_avx2(__m256i lanes) {
  const __m256i pairs = _mm256_add_epi64(_mm256_and_si256(lanes, _mm256_set1_epi64x(0xffffffff)),
                                         _mm256_srli_epi64(lanes, 32));
  const __m128i halves =
      _mm_add_epi64(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
  return static_cast<std::uint64_t>(_mm_extract_epi64(halves, 0)) +
         static_cast<std::uint64_t>(_mm_extract_epi64(halves, 1));
}

template <bool Armed>
TT_AVX2 std::size_t add_avx2(const Entries& in, Gathered& found) {
  constexpr std::size_t width = 8;
  const __m128i by = _mm_cvtsi32_si128(static_cast<int>(in.shift));
  std::size_t i = 0;
  while (in.size - i >= width) {
    const std::size_t end = i + std::min(width * most_per_lane, (in.size - i) / width * width);
    __m256i in_slow = _mm256_setzero_si256();
    for (; i < end; i += width) {
      const __m256i page =
          _mm256_srl_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(in.pages + i)), by);
      const __m256i count =
          _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in.counts + i)));
      const __m256i at_slow = bit_avx2(in.slow, page);
      in_slow = _mm256_add_epi32(in_slow, _mm256_and_si256(at_slow, count));
      if constexpr (Armed) {
        const int armed = _mm256_movemask_ps(_mm256_castsi256_ps(bit_avx2(in.armed, page)));
        note(static_cast<unsigned>(armed), i, in, found);
      }
    }
    found.slow += total_avx2(in_slow);
  }
  return i;
}

/// Rotating right by the page number (its low five bits) brings the page's bit to place 0.
TT_AVX512 inline __mmask16 bit_avx512(const std::uint32_t* words, __m512i page) {
  return _mm512_test_epi32_mask(
      _mm512_rorv_epi32(_mm512_i32gather_epi32(_mm512_srli_epi32(page, 5), words, 4), page),
      _mm512_set1_epi32(1));
}

TT_AVX512 inline std::uint64_t total_avx512(__m512i lanes) {
  return static_cast<std::uint64_t>(_mm512_reduce_add_epi64(_mm512_add_epi64(
      _mm512_and_si512(lanes, _mm512_set1_epi64(0xffffffff)), _mm512_srli_epi64(lanes, 32))));
}

template <bool Armed>
TT_AVX512 std::size_t add_avx512(const Entries& in, Gathered& found) {
  constexpr std::size_t width = 16;
  const __m128i by = _mm_cvtsi32_si128(static_cast<int>(in.shift));
  std::size_t i = 0;
  while (in.size - i >= width) {
    const std::size_t end = i + std::min(width * most_per_lane, (in.size - i) / width * width);
    __m512i in_slow = _mm512_setzero_si512();
    for (; i < end; i += width) {
      const __m512i page = _mm512_srl_epi32(_mm512_loadu_si512(in.pages + i), by);
      const __m512i count = _mm512_cvtepu16_epi32(
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in.counts + i)));
      const __mmask16 at_slow = bit_avx512(in.slow, page);
      in_slow = _mm512_mask_add_epi32(in_slow, at_slow, in_slow, count);
      if constexpr (Armed) note(bit_avx512(in.armed, page), i, in, found);
    }
    found.slow += total_avx512(in_slow);
  }
  return i;
}

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
#endif

}  // namespace

template <bool Armed>
Gathered gather(std::span<const std::uint32_t> pages, std::span<const std::uint16_t> counts,
                unsigned shift, const std::uint32_t* slow, const std::uint32_t* armed,
                std::uint32_t* tripped) {
  const Entries in{pages.data(), counts.data(), pages.size(), shift, slow, armed, tripped};
  Gathered found;
  std::size_t done = 0;
#if defined(TT_X86_VARIANTS)
  const Isa use = isa();
  if (use == Isa::avx512)
    done = add_avx512<Armed>(in, found);
  else if (use == Isa::avx2)
    done = add_avx2<Armed>(in, found);
#endif
  add_portable<Armed>(in, done, found);
  return found;
}

template Gathered gather<false>(std::span<const std::uint32_t>, std::span<const std::uint16_t>,
                                unsigned, const std::uint32_t*, const std::uint32_t*,
                                std::uint32_t*);
template Gathered gather<true>(std::span<const std::uint32_t>, std::span<const std::uint16_t>,
                               unsigned, const std::uint32_t*, const std::uint32_t*,
                               std::uint32_t*);

}  // namespace tt::sim
