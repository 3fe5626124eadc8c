// SPDX-License-Identifier: MIT

// When each page last moved: what moves again too soon plays ping-pong.
#pragma once

#include <cstdint>

#include "core/types.hpp"
#include "sim/per_page.hpp"

namespace tt::sim {

class LastMoves {
 public:
  static constexpr double ping_pong_ns = 10e9;

  explicit LastMoves(std::uint64_t pages) : at_ms_(pages) {}
  /// The page has moved now; says whether it had last moved less than 10 s ago.
  bool move(PageId page, double now_ns) {
    std::uint32_t& last = at_ms_[page.value];
    const auto stamp = static_cast<std::uint32_t>(now_ns / 1e6) + 1;
    const bool soon = last != 0 && (stamp - last) * 1e6 < ping_pong_ns;
    last = stamp;
    return soon;
  }
  void forget(PageRange range) {
    for (std::uint64_t page = range.first.value; page < range.end().value; ++page)
      if (at_ms_[page] != 0) at_ms_[page] = 0;
  }

 private:
  PerPage<std::uint32_t> at_ms_;  // + 1; 0: never
};

}  // namespace tt::sim
