// SPDX-License-Identifier: MIT

// Oracle: the rest of the run, which only oracles are told. Policies that are none do not include
// this.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

namespace tt {

/// What only oracles know: the rest of the run, which is a sequence of blocks. Everything is dense
/// by page number. A time that is said of a page is that of all real pages that it stands for.
struct Oracle {
  /// Over the whole run.
  std::span<const std::uint64_t> accesses;
  /// How long each block takes with all memory fast; 0 for set-up, which does not count.
  std::span<const double> block_ns;
  /// The blocks [born, gone) in which a page may be accessed: from its first touch on.
  struct Life {
    std::uint32_t born = 0, gone = 0;
  };
  std::span<const Life> lives;
  /// Adds to each page the run time that blocks [first, last) would save if it were in the fast
  /// tier and not in the slow one, at the latencies of idle memory. One value for each page.
  std::function<void(std::uint64_t first, std::uint64_t last, std::span<float> out)> saved;
  /// The first block that has not been played yet.
  std::function<std::uint64_t()> next_block;
  double move_ns = 0;   // run time that moving a page costs
  double mover_ns = 0;  // of a mover thread, for a page
};

}  // namespace tt
