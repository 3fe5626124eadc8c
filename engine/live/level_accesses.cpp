// SPDX-License-Identifier: MIT

#include "live/level_accesses.hpp"

#include <cstddef>
#include <numeric>

namespace tt::live {

void LevelAccesses::share(const Counters& all) {
  for (const AccessKind each : {AccessKind::load, AccessKind::store}) {
    const std::size_t kind = index(each);
    const auto& counted = each == AccessKind::load ? all.loads : all.stores;
    const double slower = counted[index(Tier::slow)];
    accesses_[kind][0] = counted[index(Tier::fast)];
    auto& seen = seen_[kind];
    const double all_seen = std::accumulate(seen.begin() + 1, seen.end(), 0.0);
    if (all_seen == 0) continue;
    for (std::size_t level = 1; level < most_levels; ++level)
      accesses_[kind][level] +=
          (slower - shared_[kind]) * static_cast<double>(seen[level]) / all_seen;
    shared_[kind] = slower;
    seen.fill(0);
  }
}

void LevelAccesses::count(Counters& counters, Level fast) const {
  for (std::size_t tier = 0; tier < tier_count; ++tier) {
    counters.loads[tier] += accesses_[index(AccessKind::load)][fast + tier];
    counters.stores[tier] += accesses_[index(AccessKind::store)][fast + tier];
  }
}

}  // namespace tt::live
