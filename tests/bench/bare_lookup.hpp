// SPDX-License-Identifier: MIT

// The bare loop: what the replay loop is compared with.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "sim/address_space.hpp"
#include "sim/gather.hpp"
#include "trace/reader.hpp"
#include "trace/stream.hpp"

namespace tt::bench {

/// Looks up the tier of each access of every block and does nothing else. Returns simulated
/// accesses found in the slow tier.
[[nodiscard]] inline std::uint64_t bare_lookup(const trace::Reader& stream, double fast_share) {
  const std::uint64_t pages = stream.info().pages;
  const std::uint64_t footprint = sim::peak_pages(stream, 0);
  std::array<std::uint64_t, tier_count> free = {
      static_cast<std::uint64_t>(std::llround(fast_share * static_cast<double>(footprint))),
      footprint};
  // First touch: the fast tier until it is full.
  sim::PageBits slow{pages};
  sim::PageBits present{pages};
  std::uint64_t found = 0;
  trace::Block block;
  for (std::uint64_t b = 0; b < stream.info().blocks; ++b) {
    stream.read(b, block);
    for (const trace::Event& event : block.events) {
      if (event.type == trace::EventType::unmap) {
        const std::uint64_t in_slow = slow.count(event.first, event.count);
        free[index(Tier::slow)] += in_slow;
        free[index(Tier::fast)] += present.count(event.first, event.count) - in_slow;
        present.clear(event.first, event.count);
        slow.clear(event.first, event.count);
      } else if (event.type == trace::EventType::touch) {
        sim::first_touch(present, slow, event.first, event.count, Tier::fast, free);
      }
    }
    for (const trace::Segment& segment : block.segments)
      found += sim::gather<false>(segment.pages, segment.counts, 0, slow.words()).slow;
  }
  return found;
}

}  // namespace tt::bench
