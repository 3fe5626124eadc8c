// SPDX-License-Identifier: MIT

// Vocabulary of the engine: pages, tiers, access kinds and time.
//
// Every room speaks these types at its door, so that a page number cannot be passed where a
// tier or a duration is meant. Nothing here knows a policy or a substrate.
#pragma once

#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

namespace tt {

/// Number of a *managed* page: what a policy tracks and migrates (4 KiB, or 2 MiB if the run uses
/// huge pages). Numbers are handed out by blocks of 2 MiB: neighbours within one are neighbours in
/// memory, others need not be. A page that processes share has one number. Not all are in use.
struct PageId {
  std::uint64_t value = 0;
  friend constexpr auto operator<=>(PageId, PageId) = default;
};

/// A half-open run of managed pages [first, first + count).
struct PageRange {
  PageId first;
  std::uint64_t count = 0;
  [[nodiscard]] constexpr PageId end() const { return {first.value + count}; }
  [[nodiscard]] constexpr bool contains(PageId page) const {
    return page.value - first.value < count;
  }
  friend constexpr bool operator==(const PageRange&, const PageRange&) = default;
};

enum class Tier : std::uint8_t { fast = 0, slow = 1 };
inline constexpr std::size_t tier_count = 2;
[[nodiscard]] constexpr std::size_t index(Tier tier) { return static_cast<std::size_t>(tier); }
[[nodiscard]] constexpr Tier other(Tier tier) {
  return tier == Tier::fast ? Tier::slow : Tier::fast;
}

/// Tiers as a set.
enum class Tiers : std::uint8_t { fast = 1, slow = 2, both = 3 };
[[nodiscard]] constexpr bool includes(Tiers tiers, Tier tier) {
  return (static_cast<unsigned>(tiers) >> index(tier) & 1U) != 0;
}

/// Where a page is now, as a residency query (live: /proc/PID/pagemap, move_pages) answers it.
enum class Residency : std::uint8_t { fast = 0, slow = 1, absent = 2 };

/// A bit per page of a range: page i of the range is bit i % 64 of word i / 64.
using PageMask = std::span<std::uint64_t>;
[[nodiscard]] constexpr std::size_t mask_words(std::uint64_t pages) { return (pages + 63) / 64; }
[[nodiscard]] constexpr bool in_mask(std::span<const std::uint64_t> mask, std::uint64_t page) {
  return (mask[page / 64] >> (page % 64) & 1U) != 0;
}

enum class AccessKind : std::uint8_t { load = 0, store = 1 };
[[nodiscard]] constexpr std::size_t index(AccessKind kind) {
  return static_cast<std::size_t>(kind);
}

/// Time since the start of the run. Virtual in the simulator, monotonic live; no policy reads a
/// system clock.
using Nanos = std::chrono::nanoseconds;
using std::chrono::duration_cast;
[[nodiscard]] constexpr double seconds(Nanos time) {
  return std::chrono::duration<double>(time).count();
}
[[nodiscard]] constexpr Nanos from_seconds(double value) {
  return Nanos{static_cast<std::int64_t>(value * 1e9)};
}
[[nodiscard]] constexpr Nanos from_millis(double value) {
  return Nanos{static_cast<std::int64_t>(value * 1e6)};
}

/// 64-bit finalising mixer (the one of SplitMix64, Steele et al., OOPSLA'14): every input bit
/// reaches every output bit. A 32-bit hash cannot reach a 0.1 % false-positive rate at 16 M pages.
[[nodiscard]] constexpr std::uint64_t mix64(std::uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ULL;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

}  // namespace tt

template <>
struct std::hash<tt::PageId> {
  std::size_t operator()(tt::PageId page) const noexcept { return tt::mix64(page.value); }
};
