// SPDX-License-Identifier: MIT

// Seen: what a class's addresses say of its pattern (overlap.hpp), as the recorder counts it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "trace/stream.hpp"

namespace tt::trace {

/// Counts of lines are shares of calls that touched lines in the cache too.
struct Seen {
  std::uint64_t fetched = 0;  // lines that loads and stores brought
  double prefetched = 0;      // of these, inside of runs
  double started = 0;         // of these, at the start of a run
  std::uint64_t stores = 0;   // retired
  std::uint64_t dirtied = 0;  // lines that stores made dirty
  std::uint64_t filled = 0;   // of these, fetched

  [[nodiscard]] Seen since(const Seen& earlier) const {
    return {fetched - earlier.fetched, prefetched - earlier.prefetched, started - earlier.started,
            stores - earlier.stores,   dirtied - earlier.dirtied,       filled - earlier.filled};
  }
  void add(const Seen& of, double times) {
    const auto more = [&](std::uint64_t count) {
      return static_cast<std::uint64_t>(static_cast<double>(count) * times + 0.5);
    };
    fetched += more(of.fetched);
    prefetched += of.prefetched * times;
    started += of.started * times;
    stores += more(of.stores);
    dirtied += more(of.dirtied);
    filled += more(of.filled);
  }
  /// Of what was only told to miss(), the class says it itself.
  void describe(StreamClass& entry) const {
    if (dirtied > 0) {
      entry.store_fill = static_cast<double>(filled) / static_cast<double>(dirtied);
      entry.store_events = static_cast<double>(stores) / static_cast<double>(dirtied);
    }
    if (fetched > 0) {
      const auto all = static_cast<double>(fetched);
      // What a program prefetches itself, it prefetches at the start of a run too.
      entry.prefetched += (1 - entry.prefetched) * std::min(1.0, prefetched / all);
      entry.translation = std::min(1.0, started / all);
    }
  }
};

}  // namespace tt::trace
