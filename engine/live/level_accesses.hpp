// SPDX-License-Identifier: MIT

// LevelAccesses: what a source counts of the fast tier and of all slower ones together, shared
// among these as its samples are found there. Of two tiers nobody needs it.
#pragma once

#include <array>
#include <cstdint>

#include "core/counters.hpp"
#include "live/nodes.hpp"

namespace tt::live {

class LevelAccesses {
 public:
  /// A sampled access went there.
  void saw(Level level, AccessKind kind) { ++seen_[index(kind)][level]; }
  /// The source has counted so many since the start; its slow tier is all but the fast one.
  /// What no sample tells of waits for one.
  void share(const Counters& all);
  /// Adds those of a tier and of the one below it.
  void count(Counters& counters, Level fast) const;

 private:
  template <typename Value>
  using Levels = std::array<std::array<Value, most_levels>, 2>;  // by kind

  Levels<std::uint64_t> seen_{};  // samples that nothing was shared by yet
  Levels<double> accesses_{};
  std::array<double, 2> shared_{};  // of the slower tiers
};

}  // namespace tt::live
