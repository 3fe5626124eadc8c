// SPDX-License-Identifier: MIT

// Patterns of access: how far misses overlap, and what prefetchers do about them.
//
// What nothing can measure is declared here only; Python reads it from the engine. A kernel
// declares the overlap of its own classes, and the recorder finds the rest in its addresses.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "trace/stream.hpp"

namespace tt::trace {

/// Prefetchers of Intel's cores follow ascending lines inside of a 4 KiB page, never across its
/// border, and begin after two misses in a row (Intel 64 and IA-32 Architectures Optimization
/// Reference Manual, on hardware prefetching). The first lines of a run are the core's own.
inline constexpr std::uint32_t training_lines = 2;

/// A run of ascending lines inside of a page, as a prefetcher follows it.
struct Run {
  std::uint8_t next = page_lines + 1;  // the line that would go on with it; beyond a page: none
  std::uint8_t lines = 0;              // so far

  struct Followed {
    std::uint32_t prefetched = 0;
    bool started = false;  // the first line goes on with nothing
  };
  /// Accesses to `count` lines from `first` on. A line that is accessed again belongs to its run.
  Followed follow(std::uint32_t first, std::uint32_t count) {
    std::uint32_t before = 0;
    if (first == next)
      before = lines;
    else if (first + 1 == next)
      before = lines - 1u;
    const std::uint32_t all = before + count;
    next = static_cast<std::uint8_t>(first + count);
    lines = static_cast<std::uint8_t>(all);
    const std::uint32_t own = std::max(training_lines, before) - before;
    return {count - std::min(own, count), before == 0};
  }
};

/// What is assumed of recorded accesses, of which only their order, or not even that, is known.
struct AccessPattern {
  std::string_view name;
  double mlp = 1;         // misses in flight at a time
  double prefetched = 0;  // StreamClass has what these two mean
  double translation = 1;
};
/// Out-of-order execution finds about four independent misses in its window of some 200
/// instructions.
inline constexpr AccessPattern random_pattern{.name = "random", .mlp = 4};
/// Prefetchers keep eight to ten lines in flight. Whole pages are read.
inline constexpr AccessPattern sequential_pattern{
    .name = "sequential",
    .mlp = 8,
    .prefetched = double{page_lines - training_lines} / page_lines,
    .translation = 1.0 / page_lines};
/// A pointer that has not arrived cannot be followed.
inline constexpr AccessPattern dependent_pattern{.name = "dependent", .mlp = 1};

/// Share of a load's latency that a store costs its thread: stores retire into a buffer, which is
/// full now and then.
inline constexpr double store_stall = 0.25;

/// A vectorised loop and a copy store 32 bytes at a time (AVX2).
inline constexpr std::uint64_t store_bytes = 32;

}  // namespace tt::trace
