// SPDX-License-Identifier: MIT

// The innermost loop of the simulator: how many accesses of a segment went to the slow tier, and
// which of its entries touch a page that is armed.
//
// One bit per managed page says in which tier it is, another one whether something waits for an
// access to it (sim/pages.hpp); the loop gathers bits, adds up counts and notes entries. All
// variants (core/isa.hpp) add integers and note entries in their order, so the result is the same
// whatever the processor has.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/assert.hpp"
#include "core/types.hpp"
#include "sim/page_bits.hpp"

namespace tt::sim {

/// First touches of a range: pages that are not there yet go to `wanted` as long as it has room for
/// them, and else to the other tier. Whole runs where nothing is in the way; page by page
/// otherwise. Updates the bits and `free`, the free pages of the two tiers. `reserve` pages of the
/// fast tier are not given away; the slow tier holds whatever does not fit. Returns how many pages
/// came into each.
inline std::array<std::uint64_t, tier_count> first_touch(
    PageBits& present, PageBits& slow, std::uint64_t first, std::uint64_t pages, Tier wanted,
    std::array<std::uint64_t, tier_count>& free, std::uint64_t reserve = 0) {
  std::array<std::uint64_t, tier_count> placed{};
  const auto room = [&](Tier tier) {
    const std::uint64_t kept = tier == Tier::fast ? reserve : 0;
    return free[index(tier)] > kept ? free[index(tier)] - kept : 0;
  };
  const auto put = [&](std::uint64_t page, std::uint64_t count, Tier tier) {
    TT_ASSERT(free[index(tier)] >= count);
    free[index(tier)] -= count;
    placed[index(tier)] += count;
    present.set(page, count);
    if (tier == Tier::slow) slow.set(page, count);
  };
  constexpr std::uint64_t run = 512;
  for (const std::uint64_t end = first + pages; first < end;) {
    const std::uint64_t count = std::min(run, end - first);
    const Tier tier = room(wanted) > 0 ? wanted : other(wanted);
    if (room(tier) >= count && present.count(first, count) == 0) {
      put(first, count, tier);
    } else {
      for (std::uint64_t page = first; page < first + count; ++page)
        if (!present.test(page)) put(page, 1, room(wanted) > 0 ? wanted : other(wanted));
    }
    first += count;
  }
  return placed;
}

struct Gathered {
  std::uint64_t slow = 0;   // accesses that went to the slow tier
  std::size_t tripped = 0;  // entries noted
};

/// Adds the counts of base pages whose managed page (base page >> shift) is in the slow tier. The
/// armed variant also writes the index of each entry whose page is armed to `tripped`, ascending,
/// which must have room for all entries. The other one looks at one bit per entry, has no branch,
/// and reads neither `armed` nor `tripped`.
template <bool Armed>
[[nodiscard]] Gathered gather(std::span<const std::uint32_t> pages,
                              std::span<const std::uint16_t> counts, unsigned shift,
                              const std::uint32_t* slow, const std::uint32_t* armed = nullptr,
                              std::uint32_t* tripped = nullptr);

/// Of the same accesses, those to pages that are mapped in units of 2^shift, by tier; a bit of
/// `huge` per group of so many pages says whether they are. Only runs of mixed page sizes need it.
[[nodiscard]] inline std::array<std::uint64_t, tier_count> gather_huge(
    std::span<const std::uint32_t> pages, std::span<const std::uint16_t> counts, unsigned shift,
    const std::uint32_t* slow, const std::uint32_t* huge) {
  std::uint64_t all = 0, in_slow = 0;
  for (std::size_t i = 0; i < pages.size(); ++i) {
    const std::uint32_t page = pages[i];
    const std::uint32_t group = page >> shift;
    const std::uint64_t count = counts[i] & -std::uint64_t{huge[group / 32] >> (group % 32) & 1U};
    all += count;
    in_slow += count & -std::uint64_t{slow[page / 32] >> (page % 32) & 1U};
  }
  return {all - in_slow, in_slow};
}

}  // namespace tt::sim
